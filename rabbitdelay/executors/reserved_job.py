"""A reserved job with blocking methods that settle it."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from rabbitdelay.engine.settle.leased_job import LeasedJob, leased_job
from rabbitdelay.executors.blocking import drive


@dataclass(frozen=True, slots=True, eq=False)
class ReservedJob(LeasedJob):
    """A job that this process has reserved for at most its ttr.

    Settle the job with finish, release, hand_back or bury. As a context manager, the job is
    finished at the end of the block and released if the block raises. A job that is not settled
    within its ttr is released. All of these methods raise LeaseLost if the job is no longer
    reserved.
    """

    def finish(self) -> None:
        """Finish the job: remove it permanently."""
        self._settlement.finish(self._lease)

    def release(self, delay: float | timedelta | None = None) -> None:
        """Release the job with attempt + 1, after a delay or its topic's backoff.

        Return once the broker has confirmed the job. A job without attempts left is buried instead.
        """
        drive(self._release(delay), self._settlement.waiter)

    def hand_back(self) -> None:
        """Return the job to the broker unchanged: ready at once, with the same attempt.

        Use it for a job that was not started. RabbitMQ 3.10 counts such returns towards its
        delivery limit of 20, so a job that was returned several times is published again instead,
        and this call waits for the confirm.
        """
        drive(self._hand_back(), self._settlement.waiter)

    def touch(self) -> None:
        """Restart the job's ttr."""
        self._settlement.touch(self._lease)

    def bury(self, reason: str) -> None:
        """Bury the job for inspection; return once the broker has confirmed the job."""
        drive(self._bury(reason), self._settlement.waiter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        drive(self._leave(error), self._settlement.waiter)


reserved_job = partial(leased_job, ReservedJob)
