"""Copy retries: what follows when the copy of a job that is given back cannot be published.

Three rules this file owns:

1. The job is not handed out again before its delay has passed: its consumer holds it and tries to
   publish the copy with what is left of the delay. A copy whose delay has passed needs no hold
   queue, because it goes straight to the ready queue.
2. Each failure after the delay has passed counts as an attempt. When the attempts are used up the
   job is buried, with the reason.
3. A broker that does not answer or takes nothing is not the job's fault: that counts as no attempt,
   and the job is returned to the broker in the end.

Times are seconds on a monotonic clock.
"""

import math
from dataclasses import dataclass

from rabbitdelay.errors import ClientClosed, NotAJob, OutcomeUnknown

FIRST_SECONDS = 1.0
"""Wait after the first failure; it doubles with each."""
MOST_SECONDS = 60.0
"""Upper bound of the wait."""
HOLD_SECONDS = 600.0
"""Time for which a job is held at most. RabbitMQ's consumer_timeout is 30 minutes by default."""


@dataclass(slots=True)
class Tries:
    """The failed tries to publish the copy of one job."""

    due_at: float
    """When the delay of the retry has passed."""
    attempts_left: int
    """How many attempts the job has left, the one that the copy is for included."""
    began_at: float
    count: int = 0
    """How often the copy could not be published."""
    counted: int = 0
    """How many of these failures count as attempts."""

    def rest_ms(self, now: float) -> int:
        """What is left of the delay, in milliseconds, rounded up."""
        return max(0, math.ceil((self.due_at - now) * 1000))


@dataclass(frozen=True, slots=True)
class TryLater:
    """The job is held, and its copy is published again after a wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class BuryNow:
    """The job is buried: its retry cannot be published."""


@dataclass(frozen=True, slots=True)
class Return:
    """The job goes back to the broker as it is."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The broker buries the message: no copy of it can ever be published."""


Next = TryLater | BuryNow | Return | DeadLetter


def after_failure(tries: Tries, error: Exception, now: float) -> Next:
    """Count a failure to publish the copy of a retry, and return what follows."""
    if isinstance(error, NotAJob):
        return DeadLetter()
    if isinstance(error, ClientClosed):
        return Return()
    is_unanswered = isinstance(error, OutcomeUnknown)
    tries.count += 1
    tries.counted += not is_unanswered and now >= tries.due_at
    if now - tries.began_at >= HOLD_SECONDS:
        return Return() if is_unanswered else BuryNow()
    if tries.counted >= max(1, tries.attempts_left):
        return BuryNow()
    return TryLater(_wait_seconds(tries, now))


def _wait_seconds(tries: Tries, now: float) -> float:
    """Return the backoff, or the rest of the delay if that is shorter."""
    backoff: float = min(MOST_SECONDS, FIRST_SECONDS * 2.0 ** min(tries.count - 1, 30))
    rest = tries.due_at - now
    return min(backoff, rest) if rest > 0 else backoff
