"""Retries: whether an attempt that failed is followed by another, and when, as a pure function."""

import math
from dataclasses import dataclass
from datetime import timedelta

from rabbitdelay import duration
from rabbitdelay.core import ladder
from rabbitdelay.core.intake import MAX_ATTEMPTS, MAX_BACKOFF_MS
from rabbitdelay.errors import InvalidConfiguration, InvalidJob
from rabbitdelay.models import Job

DEFAULT_MAX_ATTEMPTS = 10
DEFAULT_BACKOFF_SECONDS = 1.0
DEFAULT_BACKOFF_MAX_SECONDS = 3600.0
_GRAINS_MS = (
    (ladder.SECOND_MS, 100),
    (10 * ladder.SECOND_MS, ladder.SECOND_MS),
    (ladder.MINUTE_MS, 2 * ladder.SECOND_MS),
    (10 * ladder.MINUTE_MS, ladder.MINUTE_MS),
    (ladder.HOUR_MS, 5 * ladder.MINUTE_MS),
    (ladder.DAY_MS, ladder.HOUR_MS),
    (math.inf, ladder.DAY_MS),
)
"""Waits below the first are rounded up to the second. So a retry is one hop, and few hold queues
serve all of them: the first that goes through a new one waits for it to settle."""


@dataclass(frozen=True, slots=True)
class Again:
    """Another attempt follows."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No attempt follows: the job is buried."""

    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """No attempt follows: the job was deleted."""

    reason: str


Fate = Again | GiveUp | Dropped


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a job is tried, and how long is waited in between.

    The wait doubles with each attempt up to `backoff_max`; a random part of up to a half is
    taken off, so that jobs that failed together do not come back in the same instant. What a job
    says of itself goes before what its topic says.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: float | timedelta = DEFAULT_BACKOFF_SECONDS
    backoff_max: float | timedelta = DEFAULT_BACKOFF_MAX_SECONDS

    def __post_init__(self) -> None:
        count = self.max_attempts
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_ATTEMPTS:
            raise InvalidConfiguration(
                f"max_attempts must be from 1 to {MAX_ATTEMPTS:,}, not {count!r}"
            )
        for what in ("backoff", "backoff_max"):
            if not 0 <= _milliseconds(getattr(self, what), what) <= MAX_BACKOFF_MS:
                raise InvalidConfiguration(f"{what} must be from 0 to 30 days")

    def after(
        self, job: Job, *, random: float, timed_out: bool = False, delay_ms: int | None = None
    ) -> Fate:
        """Return what follows a failed attempt; `delay_ms` is a wait that was asked for.

        A timeout waits at least as long as the job's ttr: the attempt that was cut off may still
        be running, and whatever made it slow is best left alone for as long again.
        """
        most = self.max_attempts if job.max_attempts is None else job.max_attempts
        if job.attempt >= most:
            return GiveUp(f"attempt {job.attempt} of {most} failed")
        if delay_ms is not None:
            return Again(min(delay_ms, ladder.MAX_DELAY_MS))
        wait_ms = _jittered(self._backoff_ms(job), random)
        least_ms = _milliseconds(job.ttr, "ttr") if timed_out else 0
        return Again(min(max(wait_ms, least_ms), self._longest_ms(job)))

    def _backoff_ms(self, job: Job) -> int:
        first = job.backoff_ms
        first_ms = _milliseconds(self.backoff, "backoff") if first is None else first
        return min(self._longest_ms(job), first_ms << min(job.attempt - 1, 40))

    def _longest_ms(self, job: Job) -> int:
        longest = job.backoff_max_ms
        return _milliseconds(self.backoff_max, "backoff_max") if longest is None else longest


def _jittered(wait_ms: int, random: float) -> int:
    """Take off up to a half, and round to what costs few hops: each is a pass through a queue."""
    shorter_ms = int(wait_ms * (1 - random / 2))
    grain_ms = next(grain for below, grain in _GRAINS_MS if shorter_ms < below)
    return -(-shorter_ms // grain_ms) * grain_ms


def _milliseconds(value: float | timedelta, what: str) -> int:
    try:
        return duration.milliseconds(value, what=what)
    except InvalidJob as error:
        raise InvalidConfiguration(str(error)) from None
