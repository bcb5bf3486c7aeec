"""Lanes: a target in trouble is backed off from, and recovers with its confirms."""

from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.publish import lanes
from rabbitdelay.core.publish.lanes import Lane


def test_consecutive_refusals_double_the_backoff_up_to_a_limit() -> None:
    lane, now, waits = lanes.make("full", is_stream=False), 100.0, []
    for _ in range(7):
        lane.refused(now, random=0.0)
        waits.append(lane.backs_off_until - now)
        now = lane.backs_off_until
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_refusals_of_messages_in_flight_together_count_once() -> None:
    lane = lanes.make("full", is_stream=False)
    for _ in range(16):
        lane.refused(100.0, random=0.0)
    assert (lane.failures, lane.backs_off_until) == (1, 100.25)


def test_a_confirm_ends_the_backoff() -> None:
    lane = lanes.make("full", is_stream=False)
    lane.refused(100.0, random=0.0)
    lane.taken(1)
    assert (lane.failures, lane.backs_off_until) == (0, 0.0)


@given(st.lists(st.sampled_from(["taken", "refused", "stalled"]), max_size=100))
def test_a_lane_has_recovered_after_enough_confirms_in_a_row(events: list[str]) -> None:
    lane, now, in_a_row = Lane("full"), 0.0, 0
    for event in events:
        now += 10.0
        if event == "taken":
            lane.taken(8)
            in_a_row += 8
        else:
            lane.refused(now, 0.5) if event == "refused" else lane.stalled()
            in_a_row = 0
        assert lane.has_recovered == (in_a_row >= lanes.RECOVERED_COUNT)


def test_a_lane_limits_messages_in_flight() -> None:
    assert lanes.make(lanes.SUSPECT, is_stream=False).limit == 1
    assert lanes.make(lanes.SUSPECTS, is_stream=False).limit == 16
    log = lanes.make("log", is_stream=True)
    assert (log.limit, log.is_permanent) == (200, True)
