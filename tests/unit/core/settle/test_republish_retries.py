"""The decisions when the copy of a retry cannot be published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.settle import republish_retries
from rabbitdelay.core.settle.republish_retries import BuryNow, DeadLetter, Return, Tries, TryLater
from rabbitdelay.errors import (
    BrokerBlocked,
    ClientClosed,
    NotAJob,
    OutcomeUnknown,
    PermissionRefused,
    TopologyMissing,
)

MISSING = TopologyMissing("no hold queue")


def _waits(tries: Tries, error: Exception, now: float) -> list[float]:
    """Fail at the end of each wait until something other than a wait follows."""
    waits = []
    while isinstance(step := republish_retries.after_failure(tries, error, now), TryLater):
        waits.append(step.seconds)
        now += step.seconds
    assert isinstance(step, BuryNow)
    return waits


def test_waits_double_and_end_with_the_delay() -> None:
    tries = Tries(due_at=130.0, attempts_left=1, began_at=100.0)
    assert _waits(tries, MISSING, 100.0) == [1.0, 2.0, 4.0, 8.0, 15.0]


def test_failures_before_the_delay_has_passed_are_not_attempts() -> None:
    tries = Tries(due_at=130.0, attempts_left=3, began_at=100.0)
    waits = _waits(tries, MISSING, 100.0)
    assert waits[:5] == [1.0, 2.0, 4.0, 8.0, 15.0]
    assert len(waits[5:]) == 2
    assert tries.counted == 3


@given(st.floats(0, 10_000), st.integers(-5, 50), st.floats(0, 0.5))
def test_a_retry_is_published_with_the_remaining_delay(
    delay: float, attempts_left: int, answer: float
) -> None:
    tries, now = Tries(100 + delay, attempts_left, 100.0), 100.0
    while isinstance(step := republish_retries.after_failure(tries, MISSING, now), TryLater):
        assert 0 < step.seconds <= republish_retries.MOST_SECONDS
        now += step.seconds
        assert now + tries.rest_ms(now) / 1000 >= tries.due_at - 1e-6
        now += answer
    assert isinstance(step, BuryNow)
    waited = now - tries.began_at
    assert tries.counted >= max(1, attempts_left) or waited >= republish_retries.KEEP_SECONDS
    assert waited <= republish_retries.KEEP_SECONDS + republish_retries.MOST_SECONDS + 1


def test_a_delay_too_long_to_wait_for_ends_in_a_burial() -> None:
    tries = Tries(due_at=7_200.0, attempts_left=9, began_at=0.0)
    assert republish_retries.KEEP_SECONDS <= sum(_waits(tries, PermissionRefused("no"), 0.0)) < 700


@pytest.mark.parametrize("kind", [OutcomeUnknown, BrokerBlocked])
def test_an_unanswered_publish_does_not_count_as_an_attempt(kind: type[OutcomeUnknown]) -> None:
    tries, now = Tries(due_at=0.0, attempts_left=1, began_at=0.0), 0.0
    error = kind("no answer", sent=True)
    while isinstance(step := republish_retries.after_failure(tries, error, now), TryLater):
        now += step.seconds
    assert isinstance(step, Return)
    assert tries.counted == 0
    assert now >= republish_retries.KEEP_SECONDS


def test_some_errors_are_not_retried() -> None:
    tries = Tries(due_at=30.0, attempts_left=9, began_at=0.0)
    assert isinstance(republish_retries.after_failure(tries, ClientClosed("closed"), 0.0), Return)
    assert isinstance(republish_retries.after_failure(tries, NotAJob("too long"), 0.0), DeadLetter)
