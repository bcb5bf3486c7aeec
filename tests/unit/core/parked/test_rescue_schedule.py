"""The times at which a client counts the messages in `unrouted` and reads them."""

from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.parked.rescue_schedule import (
    BUSY_SECONDS,
    IDLE_SECONDS,
    PASS_SHARE,
    SOON_SECONDS,
    UnroutedWatch,
)


def test_an_empty_queue_is_not_read() -> None:
    watch = UnroutedWatch(have_queues_changed=True)
    assert not watch.look(0)


def test_new_messages_are_read_once() -> None:
    watch = UnroutedWatch()
    assert watch.look(3)
    watch.end_pass(3, 0.1)
    assert not watch.look(3)
    assert watch.look(4)


def test_messages_left_are_read_again_after_queues_were_created() -> None:
    watch = UnroutedWatch(left=3)
    assert not watch.look(3)
    watch.have_queues_changed = True
    assert watch.look(3)
    assert not watch.look(3)


def test_new_messages_are_noticed_after_a_person_removed_some() -> None:
    watch = UnroutedWatch(left=3)
    assert not watch.look(1)
    assert watch.look(2)


def test_the_first_put_after_an_idle_period_is_checked_soon() -> None:
    watch = UnroutedWatch()
    watch.begin_look(100.0)
    assert watch.next_look_at(100.0) == 100.0 + IDLE_SECONDS
    watch.is_busy = True
    assert watch.next_look_at(100.0) == 100.0 + BUSY_SECONDS
    assert watch.next_look_at(120.0) == 120.0 + SOON_SECONDS


@given(
    seconds=st.floats(0, 1000), is_busy=st.booleans(), now=st.floats(0, 1e6), ago=st.floats(0, 1e4)
)
def test_passes_take_at_most_a_tenth_of_the_time(
    *, seconds: float, is_busy: bool, now: float, ago: float
) -> None:
    watch = UnroutedWatch(looked_at=now - ago, is_busy=is_busy)
    watch.end_pass(1, seconds)
    assert watch.next_look_at(now) >= watch.looked_at + PASS_SHARE * seconds
    assert watch.next_look_at(now) >= now + SOON_SECONDS
