"""The proof that a consumer knows every delete: its age, and what renews it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.deletes.freshness import (
    FRESH_SECONDS,
    LONGEST_ROUND_TRIP_SECONDS,
    REFRESH_SECONDS,
    Freshness,
    Proof,
)


def proven(written_at: float, *, back_at: float | None = None) -> Proof:
    """Return a proof by one fence."""
    proof = Proof()
    proof.wrote("fence", written_at, measure=False)
    assert proof.came_back("fence", written_at if back_at is None else back_at)
    return proof


def measured(*round_trips: float) -> Proof:
    """Return a proof by fences with these round trips, one after the other."""
    proof, now = Proof(), 100.0
    for number, seconds in enumerate(round_trips):
        proof.wrote(str(number), now, measure=True)
        proof.came_back(str(number), now + seconds)
        now += seconds
    return proof


def test_without_a_fence_there_is_no_proof() -> None:
    assert Proof().freshness(0.0) is Freshness.STALE


@pytest.mark.parametrize(
    ("age", "freshness"),
    [
        (0.0, Freshness.FRESH),
        (REFRESH_SECONDS - 0.01, Freshness.FRESH),
        (REFRESH_SECONDS, Freshness.AGING),
        (FRESH_SECONDS - 0.01, Freshness.AGING),
        (FRESH_SECONDS, Freshness.STALE),
        (1e9, Freshness.STALE),
    ],
)
def test_a_proof_is_renewed_in_time_and_stale_after_two_seconds(
    age: float, freshness: Freshness
) -> None:
    assert proven(50.0).freshness(50.0 + age) is freshness


def test_the_age_counts_from_writing_the_fence() -> None:
    proof = proven(50.0, back_at=52.0)
    assert proof.freshness(52.0) is Freshness.STALE


def test_only_a_fence_in_flight_counts_and_only_once() -> None:
    proof = proven(50.0)
    assert not proof.came_back("fence", 51.0)
    assert not proof.came_back("another's", 51.0)
    assert proof.freshness(50.0 + FRESH_SECONDS) is Freshness.STALE


def test_a_fence_that_is_read_completes_earlier_ones() -> None:
    proof = Proof()
    for number in range(3):
        proof.wrote(str(number), float(number), measure=False)
    assert proof.came_back("1", 5.0)
    assert proof.is_awaited
    assert not proof.came_back("0", 5.0)
    assert proof.came_back("2", 5.0)
    assert not proof.is_awaited


def test_a_fence_that_was_not_written_is_not_awaited() -> None:
    proof = Proof()
    proof.wrote("fence", 0.0, measure=True)
    proof.failed("fence")
    proof.failed("fence")
    assert not proof.is_awaited
    assert not proof.came_back("fence", 0.0)


def test_void_resets_everything() -> None:
    proof = measured(3.0, 3.0)
    proof.wrote("fence", 200.0, measure=True)
    proof.void()
    assert not proof.is_awaited
    assert not proof.came_back("fence", 200.0)
    assert proof.limit_seconds == FRESH_SECONDS
    assert proof.freshness(100.0) is Freshness.STALE


# Slow connections


@pytest.mark.parametrize(
    ("round_trips", "added"),
    [
        ((), 0.0),
        ((3.0,), 0.0),
        ((3.0, 3.5), 3.0),
        ((28.0, 0.01), 0.01),
        ((0.01, 28.0), 0.01),
        ((28.0, 28.0), LONGEST_ROUND_TRIP_SECONDS),
        ((0.01, *[3.0] * 8), 3.0),
    ],
)
def test_the_shortest_of_the_last_round_trips_is_added(
    round_trips: tuple[float, ...], added: float
) -> None:
    """A single delayed fence says nothing about the connection."""
    assert measured(*round_trips).limit_seconds == pytest.approx(FRESH_SECONDS + added)


def test_on_a_slow_connection_a_fence_just_read_is_a_proof() -> None:
    """Otherwise a worker with a round trip above two seconds would never deliver a job."""
    proof = measured(3.0, 3.0)
    assert proof.freshness(106.0) is Freshness.AGING


@given(
    st.lists(st.tuples(st.floats(0, 9), st.booleans(), st.booleans()), max_size=30),
    st.floats(0, 20),
)
def test_no_job_is_delivered_on_a_proof_that_is_too_old(
    fences: list[tuple[float, bool, bool]], later: float
) -> None:
    """Whichever fences come back, and however long they take."""
    proof, now, newest = Proof(), 1_000.0, float("-inf")
    for number, (seconds, returns, measure) in enumerate(fences):
        proof.wrote(str(number), now, measure=measure)
        if returns:
            newest = max(newest, now)
            proof.came_back(str(number), now + seconds)
        now += seconds
    now += later
    assert FRESH_SECONDS <= proof.limit_seconds <= FRESH_SECONDS + LONGEST_ROUND_TRIP_SECONDS
    is_stale = now - newest >= proof.limit_seconds
    assert (proof.freshness(now) is Freshness.STALE) == is_stale
