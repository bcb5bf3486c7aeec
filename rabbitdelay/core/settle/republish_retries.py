"""Retrying to publish the copy of a retried job, after the broker has refused it.

This file owns three rules:

1. The job is not delivered again before its delay has passed. Its consumer keeps it, and tries to
   publish the copy with the remaining delay. Once the delay has passed, the copy needs no hold
   queue, because it goes straight to the ready queue.
2. Each failure after the delay has passed counts as an attempt. After the last attempt the job is
   buried, with the reason.
3. If the broker does not answer or blocks publishers, the job is not to blame. No attempt is
   counted, and in the end the job is returned to the broker.

Times are seconds on a monotonic clock.
"""

import math
from dataclasses import dataclass

from rabbitdelay.errors import ClientClosed, NotAJob, OutcomeUnknown

FIRST_SECONDS = 1.0
"""Wait after the first failure; it doubles with each further one."""
MOST_SECONDS = 60.0
"""Upper bound of the wait."""
KEEP_SECONDS = 600.0
"""Maximum time for which a consumer keeps the job, less than RabbitMQ's default consumer_timeout of
30 minutes."""


@dataclass(slots=True)
class Tries:
    """The failed publishes of one job's copy."""

    due_at: float
    """Time at which the delay of the retry has passed."""
    attempts_left: int
    """Remaining attempts of the job, including the one that the copy is for."""
    began_at: float
    count: int = 0
    """Number of failed publishes."""
    counted: int = 0
    """Number of failed publishes that count as attempts."""

    def rest_ms(self, now: float) -> int:
        """Return the remaining delay, in milliseconds, rounded up."""
        return max(0, math.ceil((self.due_at - now) * 1000))


@dataclass(frozen=True, slots=True)
class TryLater:
    """Keep the job, and publish its copy again after a wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class BuryNow:
    """Bury the job, because its retry cannot be published."""


@dataclass(frozen=True, slots=True)
class Return:
    """Return the job to the broker unchanged."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Have the broker bury the message, because no copy of it can ever be published."""


Next = TryLater | BuryNow | Return | DeadLetter


def after_failure(tries: Tries, error: Exception, now: float) -> Next:
    """Count a failed publish of the copy, and return the next step."""
    if isinstance(error, NotAJob):
        return DeadLetter()
    if isinstance(error, ClientClosed):
        return Return()
    is_unanswered = isinstance(error, OutcomeUnknown)
    tries.count += 1
    tries.counted += not is_unanswered and now >= tries.due_at
    if now - tries.began_at >= KEEP_SECONDS:
        return Return() if is_unanswered else BuryNow()
    if tries.counted >= max(1, tries.attempts_left):
        return BuryNow()
    return TryLater(_wait_seconds(tries, now))


def _wait_seconds(tries: Tries, now: float) -> float:
    """Return the backoff, or the remaining delay if that is shorter."""
    backoff: float = min(MOST_SECONDS, FIRST_SECONDS * 2.0 ** min(tries.count - 1, 30))
    rest = tries.due_at - now
    return min(backoff, rest) if rest > 0 else backoff
