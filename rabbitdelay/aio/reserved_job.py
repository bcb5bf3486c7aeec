"""A reserved job: one that this process holds, and what its holder may do with it, awaiting."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.engine.consume.held_job import HeldJob, held_job


@dataclass(frozen=True, slots=True, eq=False)
class ReservedJob(HeldJob):
    """A job that is held by this process, for at most its ttr.

    Settle it with finish, release or bury; as a context manager it is finished at the end of the
    block, and released when the block raises. What is not settled by its ttr is given back.
    Every one of these raises LeaseLost when the job is no longer held.
    """

    async def finish(self) -> None:
        """End it for good."""
        self._holder.finish(self._lease)

    async def release(self, delay: float | timedelta | None = None) -> None:
        """Give it back with attempt + 1, after a delay or its topic's backoff.

        It returns when the broker has it. A job whose attempts are used up is buried instead.
        """
        await drive(self._release(delay))

    async def touch(self) -> None:
        """Let its ttr begin again."""
        self._holder.touch(self._lease)

    async def bury(self, reason: str) -> None:
        """Give it up, and keep it for a person; it returns when the broker has it."""
        await drive(self._bury(reason))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await drive(self._leave(error))


reserved_job = partial(held_job, ReservedJob)
