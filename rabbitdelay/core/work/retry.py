"""Retries: whether and when another attempt follows a failed one, as a pure function."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rabbitdelay import duration
from rabbitdelay.core.jobs.validation import MAX_ATTEMPTS, MAX_BACKOFF_MS
from rabbitdelay.core.topology import ladder
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
"""Waits below the first value are rounded up to a multiple of the second, both in milliseconds. A
retry is therefore one hop, and all retries share few hold queues, each of which costs time when it
is first declared."""


@dataclass(frozen=True, slots=True)
class Again:
    """Another attempt follows."""

    delay_ms: int
    is_same_attempt: bool = False
    """Whether the attempt that ends does not count, because nothing was done with the job."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No attempt follows: the job is buried."""

    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """No attempt follows: the job was deleted."""

    reason: str


Fate = Again | GiveUp | Dropped
Backoff = float | timedelta | Sequence[float | timedelta]
"""Delay before the second attempt, which doubles with each; or a sequence of delays."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Maximum attempts, and the delays between them.

    The delay doubles with each attempt up to `backoff_max`. A random part of up to half is
    subtracted, so that jobs that failed together are not retried at the same instant. Options set
    by a job take precedence over those of its topic.

    A `backoff` of several delays, such as `[5, 15, 30, 60]`, is a fixed schedule: each delay is
    used exactly, without a random part and regardless of `backoff_max`. The last one repeats until
    `max_attempts`.

    A job whose ttr has passed is retried after `timeout_delay` instead. It has already waited for
    its ttr, so the default is 0: the job is ready again at once.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: Backoff = DEFAULT_BACKOFF_SECONDS
    backoff_max: float | timedelta = DEFAULT_BACKOFF_MAX_SECONDS
    timeout_delay: float | timedelta = 0.0

    def __post_init__(self) -> None:
        count = self.max_attempts
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_ATTEMPTS:
            raise InvalidConfiguration(
                f"max_attempts must be from 1 to {MAX_ATTEMPTS:,}, not {count!r}"
            )
        waits = schedule(self.backoff)
        if waits is not None:
            object.__setattr__(self, "backoff", waits)
        for wait in (self.backoff,) if waits is None else waits:
            _check_wait(wait, "backoff")
        for what in ("backoff_max", "timeout_delay"):
            _check_wait(getattr(self, what), what)

    def after(
        self, job: Job, *, random: float, timed_out: bool = False, delay_ms: int | None = None
    ) -> Fate:
        """Return the fate of a job after a failed attempt.

        `delay_ms` is the delay that the handler requested.
        """
        most = self.max_attempts if job.max_attempts is None else job.max_attempts
        if job.attempt >= most:
            return GiveUp(f"attempt {job.attempt} of {most} failed")
        if delay_ms is not None:
            return Again(min(delay_ms, ladder.MAX_DELAY_MS))
        if timed_out:
            return Again(_milliseconds(self.timeout_delay, "timeout_delay"))
        waits = None if job.backoff_ms is not None else schedule(self.backoff)
        if waits is not None:
            return Again(_scheduled_ms(waits, job))
        return Again(min(_jittered(self._backoff_ms(job), random), self._longest_ms(job)))

    def _backoff_ms(self, job: Job) -> int:
        first_ms = job.backoff_ms
        if first_ms is None:
            assert not isinstance(self.backoff, Sequence)
            first_ms = _milliseconds(self.backoff, "backoff")
        return min(self._longest_ms(job), first_ms << min(job.attempt - 1, 40))

    def _longest_ms(self, job: Job) -> int:
        longest = job.backoff_max_ms
        return _milliseconds(self.backoff_max, "backoff_max") if longest is None else longest


def schedule(backoff: Backoff) -> tuple[float | timedelta, ...] | None:
    """Return the delays of a fixed schedule; None if the backoff doubles."""
    if not isinstance(backoff, Sequence) or isinstance(backoff, (str, bytes)):
        return None
    if not backoff:
        raise InvalidConfiguration("backoff must not be empty: give delays such as [5, 15, 30, 60]")
    return tuple(backoff)


def _scheduled_ms(waits: Sequence[float | timedelta], job: Job) -> int:
    """Return the delay after the job's attempt, limited by a backoff_max that the job sets."""
    wait_ms = _milliseconds(waits[min(job.attempt, len(waits)) - 1], "backoff")
    return wait_ms if job.backoff_max_ms is None else min(wait_ms, job.backoff_max_ms)


def _check_wait(wait: Any, what: str) -> None:  # noqa: ANN401 - checked here
    if not 0 <= _milliseconds(wait, what) <= MAX_BACKOFF_MS:
        raise InvalidConfiguration(f"{what} must be from 0 to 30 days, not {wait!r}")


def _jittered(wait_ms: int, random: float) -> int:
    """Subtract up to half, and round to a delay that takes one hop."""
    shorter_ms = int(wait_ms * (1 - random / 2))
    grain_ms = next(grain for below, grain in _GRAINS_MS if shorter_ms < below)
    return -(-shorter_ms // grain_ms) * grain_ms


def _milliseconds(value: float | timedelta, what: str) -> int:
    try:
        return duration.milliseconds(value, what=what)
    except InvalidJob as error:
        raise InvalidConfiguration(str(error)) from None
