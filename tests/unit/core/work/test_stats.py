"""Worker statistics: every job is counted once, and old jobs do not count towards rates."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.work.stats import (
    KEPT_LATENESSES,
    RATE_SECONDS,
    StatsRecorder,
    WorkerCounts,
    percentile,
)

LATENESSES = st.lists(st.floats(0, 1e6), max_size=50)
PERCENTS = st.floats(0.1, 100)


def recorder(latenesses_ms: Sequence[float] = (), now: float = 100.0) -> StatsRecorder:
    made = StatsRecorder(now)
    for lateness_ms in latenesses_ms:
        made.finished(lateness_ms, now)
    return made


def test_a_new_recorder_is_zero() -> None:
    assert recorder().counts_at(100.0) == WorkerCounts(0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)


def test_counts_are_independent() -> None:
    made = recorder([5.0])
    counters = (made.released, made.buried, made.deleted, made.timed_out, made.lost)
    for times, count in enumerate((*counters, made.refused_late, made.refused_reply), start=2):
        for _ in range(times):
            count()
    assert made.counts_at(100.0) == WorkerCounts(1, 2, 3, 4, 5, 6, 7, 8, 1.0, 5.0, 5.0)


def test_all_the_leases_of_a_connection_are_lost_at_once() -> None:
    made = recorder()
    made.lost(7)
    assert made.counts_at(100.0).lost == 7


def test_percentiles_are_the_nearest_rank() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert [percentile(ordered, percent) for percent in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([], 50) == 0


@given(LATENESSES.filter(bool), PERCENTS)
def test_a_percentile_is_one_of_the_values(latenesses_ms: list[float], percent: float) -> None:
    found = recorder(latenesses_ms).percentile_ms(percent)
    at_most = sum(lateness_ms <= found for lateness_ms in latenesses_ms)
    below = sum(lateness_ms < found for lateness_ms in latenesses_ms)
    assert found in latenesses_ms
    assert below < len(latenesses_ms) * percent / 100 <= at_most


@given(LATENESSES)
def test_the_snapshot_has_the_same_percentiles(latenesses_ms: list[float]) -> None:
    made = recorder(latenesses_ms)
    seen = made.counts_at(100.0)
    assert seen.finished == len(latenesses_ms)
    assert (seen.lateness_p50_ms, seen.lateness_p99_ms) == (
        made.percentile_ms(50),
        made.percentile_ms(99),
    )


def test_only_recent_latenesses_count() -> None:
    made = recorder([1_000.0] * 50 + [1.0] * (KEPT_LATENESSES - 1))
    assert made.percentile_ms(100) == 1_000.0  # one of the first is still kept
    made.finished(2.0, 100.0)
    assert made.percentile_ms(100) == 2.0
    assert made.counts_at(100.0).finished == KEPT_LATENESSES + 50


def test_a_steady_rate_is_measured_exactly() -> None:
    made = StatsRecorder(100.0)
    for number in range(30 * 50):
        made.finished(0.0, 100.0 + number / 50)
    assert made.rate(130.0) == pytest.approx(50, rel=0.01)


def test_the_rate_of_a_new_worker_covers_only_its_lifetime() -> None:
    made = StatsRecorder(100.0)
    for number in range(40):
        made.finished(0.0, 100.0 + number / 20)
    assert made.rate(102.0) == pytest.approx(20)


def test_the_rate_at_the_first_instant_is_bounded() -> None:
    assert recorder([0.0]).rate(100.0) == 1.0


@given(
    st.lists(st.floats(0, 3 * RATE_SECONDS), max_size=60).map(sorted),
    st.floats(0, 2 * RATE_SECONDS),
)
def test_the_rate_covers_the_last_seconds(moments: list[float], later: float) -> None:
    """The same as from a list of all jobs, whatever gaps there are between them."""
    made = StatsRecorder(0.0)
    for moment in moments:
        made.finished(0.0, moment)
    now = (moments[-1] if moments else 0.0) + later
    begin = max(0, int(now) - RATE_SECONDS)
    expected = sum(moment >= begin for moment in moments) / max(1.0, now - begin)
    assert made.rate(now) == pytest.approx(expected)
    assert made.rate(now) == pytest.approx(expected), "looking changes nothing"
