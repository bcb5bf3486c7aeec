"""The life of a job: every state it can be in, and what each event makes of it, as one table.

Two rules this file owns:

1. The table has every event in every state, dead ends included. None is an event that cannot be:
   whoever gets it has lost track of the job, and is told so.
2. docs/life-of-a-job.md is drawn from the table, and is never ahead of it or behind it.
"""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a job is in its life. The value is what people read."""

    DELAYED = "delayed"
    """Waits for its time, in a hold queue."""
    READY = "ready"
    """Is due, and waits for a consumer in the ready queue of its topic."""
    RESERVED = "reserved"
    """Is held by one consumer, for at most its ttr: unacked in the ready queue."""
    BURIED = "buried"
    """Was given up on, and is kept for a person in the buried queue of its topic."""
    DELETED = "deleted"
    """Is done with: finished, dropped, or deleted by its id."""


class Event(StrEnum):
    """What can happen to a job. The value is what people read."""

    DUE = "due"
    """Its delay has passed."""
    POP = "pop"
    """It is handed to a consumer."""
    FINISH = "finish"
    """Its consumer has done it."""
    RELEASE = "release"
    """Its consumer gives it back, to be tried again. Without a delay it is ready at once."""
    TOUCH = "touch"
    """Its consumer needs more time: its ttr begins again."""
    BURY = "bury"
    """Its consumer gives it up."""
    TIMEOUT = "timeout"
    """Its ttr has passed: it is taken from its consumer and given back, with attempt + 1."""
    LOSE = "lose"
    """Its consumer's process or connection died: the broker gives it back as it was."""
    KICK = "kick"
    """A person puts it back: its attempts begin again at 1."""
    DROP = "drop"
    """A person removes it."""
    DELETE = "delete"
    """It is deleted by its id. Deleting what is deleted is no error."""


START = State.DELAYED
"""Where put begins. Without a delay a job passes straight through to ready."""

# A job whose attempts are used up is buried: then RELEASE and TIMEOUT act as BURY. So does LOSE
# when the broker has redelivered the job as often as its delivery limit lets it.
NEXT: Mapping[State, Mapping[Event, State | None]] = {
    State.DELAYED: {
        Event.DUE: State.READY,
        Event.POP: None,
        Event.FINISH: None,
        Event.RELEASE: None,
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
    """An event came that cannot be in the job's state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event.value} cannot be: the job is {state.value}")
        self.state = state
        self.event = event


def after(state: State, event: Event) -> State:
    """The state that an event leads to, or IllegalEvent."""
    following = NEXT[state][event]
    if following is None:
        raise IllegalEvent(state, event)
    return following


def picture() -> str:
    """The table for people: a diagram, and every event in every state, as Markdown."""
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
    """Where the job can go from a state, and by which events."""
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
