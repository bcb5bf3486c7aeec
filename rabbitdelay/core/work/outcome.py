"""Outcomes: the consequences of a failed attempt for its job, as passed to `on_error` hooks."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from rabbitdelay.core.work.retry import Again, Fate, GiveUp
from rabbitdelay.models import Job

RETURNED = Again(0)
"""Fate of a job that was lost with its connection: the broker redelivers it at once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The consequence of a failed attempt for its job."""

    attempt: int
    """Number of the failed attempt."""
    max_attempts: int
    """Maximum attempts of the job with this error, set by the job, its handler or its client."""
    will_retry: bool
    """Whether another attempt follows."""
    delay: timedelta | None = None
    """Time until the next attempt; None if there is none."""
    next_due: datetime | None = None
    """Time of the next attempt, by this machine's clock; None if there is none."""
    is_buried: bool = False
    """Whether the job is buried. A job that was deleted or finished in the meantime is neither
    retried nor buried."""
    reason: str | None = None
    """Why no attempt follows; None if one does."""

    @classmethod
    def of(cls, job: Job, fate: Fate | None, *, max_attempts: int, now_ms: int) -> Self:
        """Return the outcome for a fate; None stands for a job that its handler has finished."""
        if isinstance(fate, Again):
            delay = timedelta(milliseconds=fate.delay_ms)
            next_due = datetime.fromtimestamp(now_ms / 1000, UTC) + delay
            return cls(job.attempt, max_attempts, True, delay, next_due)  # noqa: FBT003 - a field
        return cls(
            job.attempt,
            max_attempts,
            will_retry=False,
            is_buried=isinstance(fate, GiveUp),
            reason="finished by its handler" if fate is None else fate.reason,
        )
