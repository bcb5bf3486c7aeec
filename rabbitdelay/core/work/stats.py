"""Worker statistics: counts of jobs by outcome, their rate and their lateness.

Counting is cheap, because it happens for each job: it does not sort, search or allocate. Reading is
slower. Any thread may read, and may miss a job that is counted at the same instant.

Times are seconds on a monotonic clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

KEPT_LATENESSES = 2_000
"""Number of most recently finished jobs over which percentiles are computed."""
RATE_SECONDS = 10
"""Number of full seconds, besides the current one, over which the rate is computed."""
_BUCKETS = RATE_SECONDS + 1


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """The statistics at one moment."""

    finished: int
    released: int
    """Jobs that are retried, including after timeouts."""
    buried: int
    """Jobs that were buried, including after timeouts."""
    deleted: int
    """Jobs that were dropped because they were deleted, replaced or purged."""
    timed_out: int
    """Jobs that were cut off at their ttr. Each is also counted as released or buried."""
    lost: int
    """Leases that were lost with their connection, whose jobs the broker has requeued."""
    refused_late: int
    """Finishes that were refused because their lease had ended."""
    refused_replies: int
    """Responses that were not sent because the job's `reply_to` is not an allowed queue."""
    finished_per_second: float
    lateness_p50_ms: float
    lateness_p99_ms: float


class StatsRecorder:
    """Counts one worker's jobs by outcome."""

    __slots__ = (
        *("_began", "_second", "_per_second", "_latenesses_ms"),
        *("_finished", "_released", "_buried", "_deleted", "_timed_out", "_lost", "_refused_late"),
        "_refused_replies",
    )

    def __init__(self, now: float) -> None:
        self._began = now
        self._second = int(now)
        self._per_second = [0] * _BUCKETS
        self._latenesses_ms = [0.0] * KEPT_LATENESSES
        self._finished = self._released = self._buried = self._deleted = 0
        self._timed_out = self._lost = self._refused_late = self._refused_replies = 0

    # Counting

    def finished(self, lateness_ms: float, now: float) -> None:
        """Count a finished job, with the time from its due time to its delivery."""
        second = int(now)
        if second > self._second:
            self._begin_second(second)
        self._per_second[second % _BUCKETS] += 1
        self._latenesses_ms[self._finished % KEPT_LATENESSES] = lateness_ms
        self._finished += 1

    def released(self) -> None:
        """Count a job that is retried."""
        self._released += 1

    def buried(self) -> None:
        """Count a buried job."""
        self._buried += 1

    def deleted(self) -> None:
        """Count a job that was dropped because it was deleted."""
        self._deleted += 1

    def timed_out(self) -> None:
        """Count a job whose ttr has passed, in addition to its outcome."""
        self._timed_out += 1

    def lost(self, leases: int = 1) -> None:
        """Count leases that were lost with their connection."""
        self._lost += leases

    def refused_late(self) -> None:
        """Count a finish that came after its lease had ended."""
        self._refused_late += 1

    def refused_reply(self) -> None:
        """Count a response that was not sent because its queue is not allowed."""
        self._refused_replies += 1

    # Reading

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the recent latenesses, in milliseconds."""
        return percentile(self._ordered_ms(), percent)

    def rate(self, now: float) -> float:
        """Return the recent number of finished jobs per second."""
        latest = max(int(now), self._second)
        seconds = range(latest - RATE_SECONDS, self._second + 1)
        count = sum(self._per_second[second % _BUCKETS] for second in seconds)
        return count / max(1.0, now - max(self._began, seconds.start))

    def counts_at(self, now: float) -> WorkerCounts:
        """Return the statistics at this moment."""
        ordered_ms = self._ordered_ms()
        return WorkerCounts(
            self._finished,
            self._released,
            self._buried,
            self._deleted,
            self._timed_out,
            self._lost,
            self._refused_late,
            self._refused_replies,
            self.rate(now),
            percentile(ordered_ms, 50),
            percentile(ordered_ms, 99),
        )

    def _ordered_ms(self) -> list[float]:
        return sorted(self._latenesses_ms[: self._finished])

    def _begin_second(self, second: int) -> None:
        """Clear the buckets of the seconds that have begun since the last job."""
        for skipped in range(max(self._second, second - _BUCKETS) + 1, second + 1):
            self._per_second[skipped % _BUCKETS] = 0
        self._second = second


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile; 0 for an empty sequence."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
