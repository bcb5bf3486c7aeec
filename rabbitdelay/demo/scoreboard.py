"""The scoreboard: the arrivals, their lateness, and the number of violations.

A violation is a job that is early, lost or run twice, or that runs at a cancelled time.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rabbitdelay.core.work.stats import percentile

BUCKETS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Lower bounds of the histogram's bars in milliseconds; the last bar has no upper bound."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One receipt of a job."""

    id: str
    due_ms: float
    received_ms: float
    outcome: str = ""
    """Outcome of the attempt, as shown."""

    @property
    def lateness_ms(self) -> float:
        """Milliseconds between the due time and the receipt; negative if the job was early."""
        return self.received_ms - self.due_ms


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the histogram."""

    label: str
    count: int


class Scoreboard:
    """Compares the arrivals with the expected jobs."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        """Expect each job the given number of times; a released job arrives again."""
        self._expected = expected
        self._seen: Counter[str] = Counter()
        self._lateness_ms: list[float] = []
        self._cancelled_ms: dict[str, int] = {}
        self._revived: Counter[str] = Counter()

    def cancel(self, id: str, due_ms: int) -> None:
        """Count arrivals of this job with this due time, or an earlier one, as violations."""
        self._cancelled_ms[id] = due_ms

    def add(self, arrival: Arrival) -> None:
        """Record an arrival."""
        self._seen[arrival.id] += 1
        self._revived[arrival.id] += arrival.due_ms <= self._cancelled_ms.get(arrival.id, -1)
        self._lateness_ms.append(arrival.lateness_ms)

    @property
    def expected(self) -> int:
        """Number of jobs that should arrive."""
        return len(self._expected)

    @property
    def arrived(self) -> int:
        """Number of expected jobs that have arrived."""
        return sum(self._seen[name] >= times for name, times in self._expected.items())

    @property
    def lost(self) -> int:
        """Number of expected jobs that have not arrived."""
        return self.expected - self.arrived

    @property
    def early(self) -> int:
        """Number of arrivals before their due time."""
        return sum(lateness_ms < 0 for lateness_ms in self._lateness_ms)

    @property
    def doubled(self) -> int:
        """Number of arrivals beyond the expected ones."""
        return sum((self._seen - Counter(self._expected)).values())

    @property
    def revived(self) -> int:
        """Number of arrivals at a cancelled due time."""
        return self._revived.total()

    @property
    def is_clean(self) -> bool:
        """Whether there are no violations."""
        return not (self.lost or self.early or self.doubled or self.revived)

    def times(self, id: str) -> int:
        """Return how many times a job has arrived."""
        return self._seen[id]

    def did_not_run(self, id: str) -> bool:
        """Whether a job did not run at its cancelled time."""
        return not self._revived[id]

    @property
    def arrivals(self) -> int:
        """Number of arrivals of all jobs."""
        return self._seen.total()

    def percentile_ms(self, percent: float) -> float:
        """Return the given percentile of the lateness, in milliseconds."""
        return percentile(sorted(self._lateness_ms), percent)

    def histogram(self) -> list[Bar]:
        """Return the bars, without empty ones at either end."""
        return histogram(self._lateness_ms)


def histogram(lateness_ms: Sequence[float]) -> list[Bar]:
    """Return the number of values between each pair of bounds."""
    ends = (*BUCKETS_MS[1:], math.inf)
    bars = [
        Bar(_label(start, end), sum(start <= max(0.0, one) < end for one in lateness_ms))
        for start, end in zip(BUCKETS_MS, ends, strict=True)
    ]
    filled = [index for index, bar in enumerate(bars) if bar.count]
    return bars[filled[0] : filled[-1] + 1] if filled else []


def _label(start: float, end: float) -> str:
    return f"≥ {start} ms" if end == math.inf else f"{start} - {end} ms"
