"""Retries: the number of attempts, and the delays between them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.jobs.validation import MAX_BACKOFF_MS, MAX_TTR_MS, MIN_TTR_MS
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.work.retry import Again, GiveUp, RetryPolicy
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.models import Job

JOB = Job("mail", "mail-1", "token", 0, 0, 60_000, b"")
MANY = 1_000
POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.just(MANY),
    backoff=st.integers(0, MAX_BACKOFF_MS).map(lambda ms: timedelta(milliseconds=ms)),
    backoff_max=st.integers(0, MAX_BACKOFF_MS).map(lambda ms: timedelta(milliseconds=ms)),
)
EVERYDAY = st.builds(
    RetryPolicy,
    max_attempts=st.just(MANY),
    backoff=st.floats(0, 100),
    backoff_max=st.sampled_from([1, 5, 10, 30, 60, 90, 600, 1800, 3600]),
)
JOBS = st.builds(
    replace,
    st.just(JOB),
    attempt=st.integers(1, MANY - 1),
    ttr_ms=st.none() | st.integers(MIN_TTR_MS, MAX_TTR_MS),
    backoff_ms=st.none() | st.integers(0, MAX_BACKOFF_MS),
    backoff_max_ms=st.none() | st.integers(0, MAX_BACKOFF_MS),
)
RANDOM = st.floats(0, 1, exclude_max=True)


def wait_ms(policy: RetryPolicy, job: Job, *, random: float = 0.0, timed_out: bool = False) -> int:
    fate = policy.after(job, random=random, timed_out=timed_out)
    assert isinstance(fate, Again)
    return fate.delay_ms


def own(of_job_ms: int | None, of_topic: object) -> int:
    """Return the option in milliseconds: the job's own, else its topic's."""
    if of_job_ms is not None:
        return of_job_ms
    assert isinstance(of_topic, timedelta)
    return of_topic // timedelta(milliseconds=1)


@given(POLICIES, JOBS, RANDOM)
def test_no_delay_exceeds_backoff_max(policy: RetryPolicy, job: Job, random: float) -> None:
    longest_ms = own(job.backoff_max_ms, policy.backoff_max)
    assert 0 <= wait_ms(policy, job, random=random) <= longest_ms


@given(POLICIES, JOBS, RANDOM)
def test_the_delay_never_shrinks_between_attempts(
    policy: RetryPolicy, job: Job, random: float
) -> None:
    following = replace(job, attempt=job.attempt + 1)
    if following.attempt < MANY:
        assert wait_ms(policy, following, random=random) >= wait_ms(policy, job, random=random)


@given(POLICIES, JOBS, RANDOM)
def test_jitter_subtracts_at_most_half(policy: RetryPolicy, job: Job, random: float) -> None:
    first_ms = own(job.backoff_ms, policy.backoff)
    whole_ms = min(first_ms * 2 ** (job.attempt - 1), own(job.backoff_max_ms, policy.backoff_max))
    assert wait_ms(policy, job, random=random) >= whole_ms // 2
    assert wait_ms(policy, job, random=0.0) >= whole_ms


@given(POLICIES, JOBS, RANDOM)
def test_a_timeout_is_retried_at_once_by_default(
    policy: RetryPolicy, job: Job, random: float
) -> None:
    assert wait_ms(policy, job, random=random, timed_out=True) == 0


@given(POLICIES, JOBS, RANDOM, st.integers(0, MAX_BACKOFF_MS))
def test_a_timeout_uses_the_timeout_delay_not_the_backoff(
    policy: RetryPolicy, job: Job, random: float, delay_ms: int
) -> None:
    patient = replace(policy, timeout_delay=timedelta(milliseconds=delay_ms))
    assert wait_ms(patient, job, random=random, timed_out=True) == delay_ms
    assert wait_ms(patient, job, random=random) == wait_ms(policy, job, random=random)


@given(EVERYDAY, st.integers(1, 40), RANDOM)
def test_a_delay_takes_at_most_two_hops(policy: RetryPolicy, attempt: int, random: float) -> None:
    delay_ms = wait_ms(policy, replace(JOB, attempt=attempt), random=random)
    assert len(ladder.hops(ladder.to_digits(delay_ms))) <= 2


def test_the_delay_doubles() -> None:
    policy = RetryPolicy(backoff=1, backoff_max=30)
    waits_ms = [wait_ms(policy, replace(JOB, attempt=attempt)) for attempt in range(1, 8)]
    assert waits_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def test_jitter_spreads_jobs_that_failed_together() -> None:
    policy = RetryPolicy(backoff=8)
    waits_ms = {wait_ms(policy, JOB, random=number / 100) for number in range(100)}
    assert waits_ms == {5_000, 6_000, 7_000, 8_000}
    long = RetryPolicy(backoff=50)
    spread_ms = {wait_ms(long, JOB, random=number / 100) for number in range(100)}
    assert (min(spread_ms), max(spread_ms), len(spread_ms)) == (26_000, 50_000, 13)


def test_a_job_s_options_take_precedence_over_its_topic_s() -> None:
    policy = RetryPolicy(max_attempts=2, backoff=5, backoff_max=60)
    job = replace(JOB, attempt=3, max_attempts=4, backoff_ms=1_000, backoff_max_ms=3_000)
    assert policy.after(job, random=0.0) == Again(3_000)
    assert policy.after(replace(job, backoff_max_ms=None), random=0.0) == Again(4_000)
    assert policy.after(replace(job, backoff_ms=None), random=0.0) == Again(3_000)
    assert isinstance(policy.after(replace(job, max_attempts=None), random=0.0), GiveUp)


@given(st.integers(1, 50), st.none() | st.integers(1, 50), st.booleans())
def test_attempts_end_exactly_at_max_attempts(
    of_topic: int,
    of_job: int | None,
    timed_out: bool,  # noqa: FBT001 - drawn
) -> None:
    policy, most = RetryPolicy(max_attempts=of_topic), of_job or of_topic
    for attempt in range(1, most + 2):
        job = replace(JOB, attempt=attempt, max_attempts=of_job)
        for delay_ms in (None, 0):
            fate = policy.after(job, random=0.5, timed_out=timed_out, delay_ms=delay_ms)
            assert isinstance(fate, Again if attempt < most else GiveUp)


def test_the_reason_contains_the_number_of_attempts() -> None:
    fate = RetryPolicy(max_attempts=3).after(replace(JOB, attempt=3), random=0.0)
    assert fate == GiveUp("attempt 3 of 3 failed")


@given(JOBS, RANDOM, st.integers(0, ladder.MAX_DELAY_MS))
def test_a_requested_delay_is_used_exactly(job: Job, random: float, delay_ms: int) -> None:
    policy = RetryPolicy(max_attempts=MANY)
    assert policy.after(job, random=random, delay_ms=delay_ms) == Again(delay_ms)


def test_a_requested_delay_is_limited_to_that_of_the_ladder() -> None:
    fate = RetryPolicy().after(JOB, random=0.0, delay_ms=ladder.MAX_DELAY_MS + 1)
    assert fate == Again(ladder.MAX_DELAY_MS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_attempts": 0}, "max_attempts must be from 1 to 1,000,000, not 0"),
        ({"max_attempts": 1_000_001}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"backoff": -1}, "backoff must be from 0 to 30 days"),
        ({"backoff": timedelta(days=31)}, "backoff must be from 0 to 30 days"),
        ({"backoff": float("nan")}, "backoff must be a finite number"),
        ({"backoff_max": "1h"}, "backoff_max must be a number of seconds or a timedelta"),
        ({"backoff_max": -0.5}, "backoff_max must be from 0 to 30 days"),
    ],
)
def test_an_invalid_policy_is_explained(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=text):
        RetryPolicy(**arguments)


# A fixed schedule


@given(st.lists(st.integers(0, 3600), min_size=1, max_size=8), st.integers(1, 50), RANDOM)
def test_a_schedule_is_used_exactly_and_its_last_delay_repeats(
    waits: list[int], attempt: int, random: float
) -> None:
    """No random part is subtracted, and backoff_max does not apply."""
    policy = RetryPolicy(MANY, waits, backoff_max=1)
    job = replace(JOB, attempt=attempt)
    expected = waits[min(attempt, len(waits)) - 1] * 1000
    assert wait_ms(policy, job, random=random) == expected


def test_a_job_s_backoff_takes_precedence_over_its_topic_s_schedule() -> None:
    policy = RetryPolicy(MANY, [5, 10])
    assert wait_ms(policy, replace(JOB, backoff_ms=2_000, attempt=2)) == 4_000
    assert wait_ms(policy, replace(JOB, backoff_max_ms=7_000, attempt=2)) == 7_000


def test_a_schedule_ends_with_max_attempts() -> None:
    fate = RetryPolicy(3, [1]).after(replace(JOB, attempt=3), random=0.0)
    assert fate == GiveUp("attempt 3 of 3 failed")


@pytest.mark.parametrize("wrong", [[], ["5"], [-1], [5, 31 * 86_400], "5", [True], [None]])
def test_an_invalid_schedule_is_refused(wrong: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidConfiguration, match="backoff must"):
        RetryPolicy(3, wrong)


def test_a_policy_with_a_schedule_is_hashable() -> None:
    assert RetryPolicy(3, [1, 2]) == RetryPolicy(3, (1, 2))
    assert hash(RetryPolicy(3, [1, 2])) == hash(RetryPolicy(3, (1, 2)))
