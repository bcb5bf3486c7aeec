"""The states of a job: the table is complete, and the documentation agrees with it."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.jobs.states import NEXT, START, Event, IllegalEvent, State, after, picture
from rabbitdelay.core.topology.topology import DELIVERY_LIMIT

PAGE = Path(__file__).parents[4] / "docs" / "life-of-a-job.md"
BEGIN, END = (
    "<!-- drawn from core/jobs/states.py: begin -->\n",
    "<!-- drawn from core/jobs/states.py: end -->\n",
)
REDRAW_VARIABLE = "RABBITDELAY_REDRAW"
HOW_TO_REDRAW = f"{REDRAW_VARIABLE}=1 python -m pytest tests/unit/core/jobs/test_states.py"
OF_A_CONSUMER = {
    *(Event.FINISH, Event.RELEASE, Event.HAND_BACK, Event.TOUCH, Event.BURY),
    *(Event.TIMEOUT, Event.LOSE),
}


def legal(state: State) -> dict[Event, State]:
    return {event: following for event, following in NEXT[state].items() if following}


def reachable(start: State) -> set[State]:
    seen, found = {start}, [start]
    while found:
        found = [state for state in legal(found.pop()).values() if state not in seen] + found
        seen.update(found)
    return seen


def test_the_table_contains_every_event_in_every_state() -> None:
    assert set(NEXT) == set(State)
    for state in State:
        assert set(NEXT[state]) == set(Event)


def test_every_event_is_possible_in_some_state() -> None:
    assert {event for state in State for event in legal(state)} == set(Event)


def test_every_state_is_reachable_and_leads_to_deleted() -> None:
    assert reachable(START) == set(State)
    for state in State:
        assert State.DELETED in reachable(state)


def test_a_deleted_job_stays_deleted() -> None:
    assert reachable(State.DELETED) == {State.DELETED}


def test_delete_is_possible_in_every_state() -> None:
    assert {after(state, Event.DELETE) for state in State} == {State.DELETED}


def test_consumer_events_require_a_reserved_job() -> None:
    for state in set(State) - {State.RESERVED}:
        assert not OF_A_CONSUMER & legal(state).keys()


def test_only_finish_drop_and_delete_end_a_job() -> None:
    """Only finish, drop and delete end a job. After any other event it is still on the broker."""
    ends = {event for state in State for event, to in legal(state).items() if to is State.DELETED}
    assert ends == {Event.FINISH, Event.DROP, Event.DELETE}


def test_a_typical_sequence_of_events() -> None:
    state = START
    lived = []
    for event in (Event.DUE, Event.POP, Event.TOUCH, Event.TIMEOUT, Event.DUE, Event.POP):
        state = after(state, event)
    for event in (Event.LOSE, Event.POP, Event.BURY, Event.KICK, Event.POP, Event.FINISH):
        state = after(state, event)
        lived.append(state.value)
    assert lived == ["ready", "reserved", "buried", "ready", "reserved", "deleted"]


@given(st.sampled_from(State), st.sampled_from(Event))
def test_an_illegal_event_names_the_event_and_the_state(state: State, event: Event) -> None:
    if event in legal(state):
        assert after(state, event) is NEXT[state][event]
        return
    with pytest.raises(IllegalEvent, match=rf"^{event.value} .*{state.value}$") as caught:
        after(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)


def test_the_diagram_contains_exactly_the_legal_transitions() -> None:
    arrows = re.findall(r"^ {4}(\w+) --> (\w+): (.+)$", picture(), re.MULTILINE)
    drawn = {(begin, event, end) for begin, end, events in arrows for event in events.split(", ")}
    assert drawn == {
        (state.value, event.value, to.value)
        for state in State
        for event, to in legal(state).items()
    }


def test_the_page_contains_the_generated_picture() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    drawn, end, after_it = rest.partition(END)
    assert end, f"{PAGE.name} must have the two lines {BEGIN!r} and {END!r}"
    if os.environ.get(REDRAW_VARIABLE):
        drawn = f"\n{picture()}\n"
        PAGE.write_text(f"{before}{BEGIN}{drawn}{END}{after_it}")
    assert drawn == f"\n{picture()}\n", f"{PAGE.name} is out of date: {HOW_TO_REDRAW}"


def test_the_page_describes_every_state_and_event() -> None:
    prose = PAGE.read_text().partition(BEGIN)[0] + PAGE.read_text().partition(END)[2]
    for word in (*State, *Event):
        assert f"**{word.value}**" in prose
    assert f"{DELIVERY_LIMIT} redeliveries" in prose
