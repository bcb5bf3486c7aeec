"""Outcomes: what becomes of a job whose attempt failed, as `on_error` hooks are told it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from rabbitdelay.core.work.retry import Again, Fate, GiveUp
from rabbitdelay.models import Job

RETURNED = Again(0)
"""The fate of a job that was lost with its connection: the broker delivers it again at once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of a job whose attempt failed."""

    attempt: int
    """The attempt that failed."""
    max_attempts: int
    """The attempts that the job has with this error, by itself, its handler or its client."""
    will_retry: bool
    """Whether another attempt follows."""
    delay: timedelta | None = None
    """The wait before the next attempt; None when none follows."""
    next_due: datetime | None = None
    """The time of the next attempt, by this machine's clock; None when none follows."""
    is_buried: bool = False
    """Whether the job is buried. It is neither retried nor buried when it was deleted or finished
    in the meantime."""
    reason: str | None = None
    """The reason why no attempt follows; None when one does."""

    @classmethod
    def of(cls, job: Job, fate: Fate | None, *, max_attempts: int, now_ms: int) -> Self:
        """Return the outcome that a fate means; None is a job that its handler has finished."""
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
