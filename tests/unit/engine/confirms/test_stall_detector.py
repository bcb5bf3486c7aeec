"""The stall detector: its patience follows the time that the broker takes to answer."""

import pytest

from rabbitdelay.core.jobs.envelope import encode
from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.core.publish.outbox import LadderEntry, Pending
from rabbitdelay.core.publish.round_trip import RoundTrip
from rabbitdelay.engine.confirms.stall_detector import StallDetector
from rabbitdelay.models import Job


def sent(lane: str, at: float) -> Pending:
    job = Job("t", "id", "token", 0, 0, None, b"")
    pending = Pending(encode(job), LadderEntry("t", 0), at, at + 30, lambda _: None)
    pending.lane, pending.sent_at = lane, at
    return pending


def test_the_estimate_converges_to_a_steady_round_trip() -> None:
    round_trip = RoundTrip()
    assert round_trip.longest_seconds == 0.0
    for _ in range(50):
        round_trip.sample(2.0)
    assert round_trip.longest_seconds == pytest.approx(2.0, abs=0.01)


def test_one_slow_answer_widens_the_bound_and_fast_ones_narrow_it_again() -> None:
    round_trip = RoundTrip()
    for _ in range(50):
        round_trip.sample(0.01)
    round_trip.sample(1.0)
    assert round_trip.longest_seconds > 1.0
    for _ in range(50):
        round_trip.sample(0.01)
    assert round_trip.longest_seconds < 0.1


def test_patience_is_eight_seconds_on_a_fast_connection_and_longer_on_a_slow_one() -> None:
    fast, slow = StallDetector(), StallDetector()
    for _ in range(50):
        fast.answered(0.01)
        slow.answered(4.0)
    assert fast.patience_seconds() == 8.0
    assert slow.patience_seconds() == pytest.approx(12.0, abs=0.1)


def test_one_answer_on_a_slow_connection_is_enough_to_extend_the_patience() -> None:
    detector = StallDetector()
    detector.answered(6.0)
    assert detector.patience_seconds() > 2 * 6.0


def test_patience_grows_with_failures_and_is_bounded() -> None:
    detector = StallDetector()
    assert [detector.patience_seconds(n) for n in range(4)] == [8.0, 16.0, 32.0, 32.0]
    detector.answered(20.0)
    assert detector.patience_seconds(2) == 60.0


def test_only_lanes_that_do_not_answer_are_stalled() -> None:
    detector, flight = StallDetector(), Flight()
    for lane, at in (("a", 100.0), ("b", 100.5), ("a", 101.0), ("c", 105.0)):
        flight.add(sent(lane, at))
    assert detector.stalled_lanes(flight, 108.0) == set()
    assert detector.stalled_lanes(flight, 108.4) == {"a"}
    assert detector.stalled_lanes(flight, 110.0) == {"a", "b"}
    assert detector.stalled_lanes(flight, 110.0, failures=1) == set()


def test_the_time_of_an_alarm_does_not_count() -> None:
    detector = StallDetector()
    detector.resume(160.0)
    assert not detector.is_overdue(100.0, 165.0)
    assert detector.is_overdue(100.0, 168.1)
