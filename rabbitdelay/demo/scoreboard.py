"""The scoreboard: what has arrived, how late, and whether anything is not as it must be.

A job may be early, lost or doubled, or run at a time that was called off.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rabbitdelay.core.work.stats import percentile

BUCKETS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Where the bars of the histogram begin; the last one has no end."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job as it was received."""

    id: str
    due_ms: float
    received_ms: float
    then: str = ""
    """What became of it."""

    @property
    def lateness_ms(self) -> float:
        """How long after its time it arrived; negative is early, which must not be."""
        return self.received_ms - self.due_ms


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the histogram."""

    label: str
    count: int


class Scoreboard:
    """Keeps what has arrived of the jobs that should."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        """Expect these jobs, each so many times: what is given back arrives again."""
        self._expected = expected
        self._seen: Counter[str] = Counter()
        self._lateness_ms: list[float] = []
        self._called_off_ms: dict[str, int] = {}
        self._revived: Counter[str] = Counter()

    def call_off(self, id: str, due_ms: int) -> None:
        """Expect no arrival of this job that is due then, or was before."""
        self._called_off_ms[id] = due_ms

    def add(self, arrival: Arrival) -> None:
        """Note an arrival."""
        self._seen[arrival.id] += 1
        self._revived[arrival.id] += arrival.due_ms <= self._called_off_ms.get(arrival.id, -1)
        self._lateness_ms.append(arrival.lateness_ms)

    @property
    def expected(self) -> int:
        """How many jobs should arrive."""
        return len(self._expected)

    @property
    def arrived(self) -> int:
        """How many of them have."""
        return sum(self._seen[name] >= times for name, times in self._expected.items())

    @property
    def lost(self) -> int:
        """How many of them have not."""
        return self.expected - self.arrived

    @property
    def early(self) -> int:
        """How many arrived before their time."""
        return sum(lateness_ms < 0 for lateness_ms in self._lateness_ms)

    @property
    def doubled(self) -> int:
        """How many arrivals were one too many."""
        return sum((self._seen - Counter(self._expected)).values())

    @property
    def revived(self) -> int:
        """How many arrivals were due at a time that was called off."""
        return self._revived.total()

    @property
    def is_clean(self) -> bool:
        """Whether all is as it must be."""
        return not (self.lost or self.early or self.doubled or self.revived)

    def times(self, id: str) -> int:
        """How often a job has arrived."""
        return self._seen[id]

    def kept_away(self, id: str) -> bool:
        """Whether a job has not come at the time that was called off."""
        return not self._revived[id]

    @property
    def arrivals(self) -> int:
        """How many arrivals there were, of all jobs."""
        return self._seen.total()

    def percentile_ms(self, percent: float) -> float:
        """The lateness that so many percent of the jobs did not exceed."""
        return percentile(sorted(self._lateness_ms), percent)

    def histogram(self) -> list[Bar]:
        """The bars, without the empty ones at both ends."""
        return histogram(self._lateness_ms)


def histogram(lateness_ms: Sequence[float]) -> list[Bar]:
    """Count how many fall between each two beginnings."""
    ends = (*BUCKETS_MS[1:], math.inf)
    bars = [
        Bar(_label(start, end), sum(start <= max(0.0, one) < end for one in lateness_ms))
        for start, end in zip(BUCKETS_MS, ends, strict=True)
    ]
    filled = [index for index, bar in enumerate(bars) if bar.count]
    return bars[filled[0] : filled[-1] + 1] if filled else []


def _label(start: float, end: float) -> str:
    return f"from {start} ms" if end == math.inf else f"{start} - {end} ms"
