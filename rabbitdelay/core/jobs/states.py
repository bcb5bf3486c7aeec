"""The states of a job, and the effect of each event in each state, as one table.

This file owns two rules:

1. The table contains every event in every state, dead ends included. None marks an event that
   cannot happen in a state; `after` raises IllegalEvent for it.
2. docs/life-of-a-job.md is generated from the table, and always agrees with it.
"""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """A state of a job. The value is the name that users read."""

    DELAYED = "delayed"
    """The job waits in a hold queue until it is due."""
    READY = "ready"
    """The job is due, and waits for a consumer in the ready queue of its topic."""
    RESERVED = "reserved"
    """One consumer has the job, for at most its ttr. The message is unacknowledged meanwhile."""
    BURIED = "buried"
    """The job has failed for good, and is kept for a person in the buried queue of its topic."""
    DELETED = "deleted"
    """The job is gone: finished, dropped, or deleted by its id."""


class Event(StrEnum):
    """An event in the life of a job. The value is the name that users read."""

    DUE = "due"
    """The delay has passed."""
    POP = "pop"
    """A consumer receives the job."""
    FINISH = "finish"
    """The consumer has completed the job."""
    RELEASE = "release"
    """The consumer gives the job up for a retry. Without a delay it is ready at once."""
    HAND_BACK = "hand back"
    """The consumer returns the job unchanged, because nothing was done with it."""
    TOUCH = "touch"
    """The consumer needs more time: the ttr starts again."""
    BURY = "bury"
    """The consumer declares the job failed for good."""
    TIMEOUT = "timeout"
    """The ttr has passed. The job is taken from its consumer and retried, with attempt + 1."""
    LOSE = "lose"
    """The consumer's process or connection died: the broker requeues the job unchanged."""
    KICK = "kick"
    """A person puts a buried job back. Its attempts start again at 1."""
    DROP = "drop"
    """A person removes a buried job."""
    DELETE = "delete"
    """The job is deleted by its id. Deleting a deleted job is not an error."""


START = State.DELAYED
"""State after put. A job without a delay becomes ready at once."""

# On the last attempt RELEASE and TIMEOUT act as BURY. So does LOSE when the broker has redelivered
# the job as often as its delivery limit allows.
NEXT: Mapping[State, Mapping[Event, State | None]] = {
    State.DELAYED: {
        Event.DUE: State.READY,
        Event.POP: None,
        Event.FINISH: None,
        Event.RELEASE: None,
        Event.HAND_BACK: None,
        Event.TOUCH: None,
        Event.BURY: None,
        Event.TIMEOUT: None,
        Event.LOSE: None,
        Event.KICK: None,
        Event.DROP: None,
        Event.DELETE: State.DELETED,
    },
    State.READY: {
        Event.DUE: None,
        Event.POP: State.RESERVED,
        Event.FINISH: None,
        Event.RELEASE: None,
        Event.HAND_BACK: None,
        Event.TOUCH: None,
        Event.BURY: None,
        Event.TIMEOUT: None,
        Event.LOSE: None,
        Event.KICK: None,
        Event.DROP: None,
        Event.DELETE: State.DELETED,
    },
    State.RESERVED: {
        Event.DUE: None,
        Event.POP: None,
        Event.FINISH: State.DELETED,
        Event.RELEASE: State.DELAYED,
        Event.HAND_BACK: State.READY,
        Event.TOUCH: State.RESERVED,
        Event.BURY: State.BURIED,
        Event.TIMEOUT: State.DELAYED,
        Event.LOSE: State.READY,
        Event.KICK: None,
        Event.DROP: None,
        Event.DELETE: State.DELETED,
    },
    State.BURIED: {
        Event.DUE: None,
        Event.POP: None,
        Event.FINISH: None,
        Event.RELEASE: None,
        Event.HAND_BACK: None,
        Event.TOUCH: None,
        Event.BURY: None,
        Event.TIMEOUT: None,
        Event.LOSE: None,
        Event.KICK: State.READY,
        Event.DROP: State.DELETED,
        Event.DELETE: State.DELETED,
    },
    State.DELETED: {
        Event.DUE: None,
        Event.POP: None,
        Event.FINISH: None,
        Event.RELEASE: None,
        Event.HAND_BACK: None,
        Event.TOUCH: None,
        Event.BURY: None,
        Event.TIMEOUT: None,
        Event.LOSE: None,
        Event.KICK: None,
        Event.DROP: None,
        Event.DELETE: State.DELETED,
    },
}


class IllegalEvent(ValueError):
    """Raised for an event that cannot happen in the job's state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event.value} is not possible: the job is {state.value}")
        self.state = state
        self.event = event


def after(state: State, event: Event) -> State:
    """Return the state that an event leads to; raise IllegalEvent if it cannot happen."""
    following = NEXT[state][event]
    if following is None:
        raise IllegalEvent(state, event)
    return following


def picture() -> str:
    """Return the table as Markdown: a diagram, and the effect of every event in every state."""
    return f"{_diagram()}\n\n{_table()}\n"


def _diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {START.value}: put"]
    for state in State:
        lines += [
            f"    {state.value} --> {following.value}: {', '.join(events)}"
            for following, events in _ways_out(state).items()
        ]
    return "\n".join([*lines, f"    {State.DELETED.value} --> [*]", "```"])


def _ways_out(state: State) -> dict[State, list[str]]:
    """Return the states that can follow a state, each with the events that lead there."""
    ways: dict[State, list[str]] = {}
    for event, following in NEXT[state].items():
        if following is not None:
            ways.setdefault(following, []).append(event.value)
    return ways


def _table() -> str:
    rows = [["", *(state.value for state in State)], ["---"] * (len(State) + 1)]
    rows += [[f"**{event.value}**", *(_cell(state, event) for state in State)] for event in Event]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(state: State, event: Event) -> str:
    following = NEXT[state][event]
    return "—" if following is None else following.value
