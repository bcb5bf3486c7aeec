"""The verbs for jobs that wait for a person: buried jobs, and jobs that could not be routed."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.parked.parked_job import Ids, SentJobs
from rabbitdelay.core.parked.unrouted import UnroutedJob
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.parked.buried_queue import BuriedQueue
from rabbitdelay.engine.parked.parked_queue import OnTried
from rabbitdelay.engine.parked.unrouted_queue import UnroutedQueue

Result = TypeVar("Result")


class BuriedJobs:
    """The buried jobs of one topic. `Client.buried` returns it.

    Listing changes nothing, except that it drops buried jobs that are deleted. Jobs that a call
    only looked at are back in the queue when the call returns, or when its iterator is closed.
    """

    def __init__(self, queue: BuriedQueue) -> None:
        self._queue = queue
        self._dropped_deleted = 0

    def __repr__(self) -> str:
        return f"BuriedJobs({self._queue.name!r})"

    @property
    def dropped_deleted(self) -> int:
        """Number of deleted jobs that `list` and `show` have dropped so far."""
        return self._dropped_deleted

    async def count(self) -> int:
        """Count the buried jobs of the topic.

        Raises:
            TopologyMissing: The topic does not exist.
        """
        return await self._drive(self._queue.count())

    async def list(
        self,
        *,
        limit: int | None = None,
        id: Ids = None,
        where: Callable[[BuriedJob], bool] | None = None,
        check_deletes: bool = True,
    ) -> AsyncIterator[BuriedJob]:
        """Yield buried jobs, and leave them in the queue.

        Jobs are fetched in batches of 100. Those that were fetched are hidden from other clients
        until the iteration ends.

        Args:
            limit: Maximum number of jobs. Default: all.
            id: The id of the job, or several ids. Default: every id.
            where: Called with each job; only those for which it returns True are yielded.
            check_deletes: Whether to drop deleted jobs instead of yielding them. With False, the
                log of deletes is not read.

        Raises:
            CutOff: The log of deletes cannot be read.
            TopologyMissing: The topic does not exist.
        """
        one_pass = self._queue.looking(id, where, limit, check_deletes=check_deletes)
        try:
            while batch := await self._drive(one_pass.next_found()):
                for job in batch:
                    yield job
        finally:
            self._dropped_deleted += one_pass.dropped_deleted
            one_pass.abandon()

    async def show(self, id: str, *, check_deletes: bool = True) -> Sequence[BuriedJob]:
        """Return the buried jobs with this id; ids are not unique."""
        found, dropped = await self._drive(self._queue.show(id, check_deletes=check_deletes))
        self._dropped_deleted += dropped
        return found

    async def kick(
        self,
        *,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[BuriedJob], bool] | None = None,
        timeout: float | None = None,
        on_tried: OnTried[BuriedJob] | None = None,
    ) -> SentJobs:
        """Make buried jobs ready at once, with attempt 1.

        Each job is removed from the buried queue after the broker has confirmed its copy. If the
        call is interrupted, a job may exist twice, but none is lost. Deleted jobs are dropped. Jobs
        that are buried again meanwhile wait for the next kick.

        Args:
            id: The id of the job, or several ids. Default: every job.
            limit: Maximum number of jobs. Default: all.
            where: Called with each job; only those for which it returns True are kicked.
            timeout: Seconds that the broker may take to confirm a copy. Default: the client's
                timeout.
            on_tried: Called with each job and whether it was kicked, after each batch.

        Raises:
            OutcomeUnknown: A copy was not confirmed within the timeout; its job is still buried.
            CutOff: The log of deletes cannot be read.
            TopologyMissing: The topic does not exist.
        """
        return await self._drive(
            self._queue.kick(id, where, limit, timeout=timeout, on_tried=on_tried)
        )

    async def drop(
        self,
        *,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[BuriedJob], bool] | None = None,
    ) -> int:
        """Remove buried jobs for good, all of them by default; return how many."""
        return await self._drive(self._queue.drop_chosen(id, where, limit))

    async def _drive(self, flow: Flow[Result]) -> Result:
        return await drive(flow, self._queue.source)


class UnroutedJobs:
    """The jobs that could not be routed. `Client.unrouted` returns it.

    Listing changes nothing. Jobs that a call only looked at are back in the queue when the call
    returns, or when its iterator is closed.
    """

    def __init__(self, queue: UnroutedQueue) -> None:
        self._queue = queue

    def __repr__(self) -> str:
        return f"UnroutedJobs({self._queue.name!r})"

    async def count(self) -> int:
        """Count the jobs that could not be routed.

        Raises:
            TopologyMissing: The namespace does not exist.
        """
        return await self._drive(self._queue.count())

    async def list(
        self,
        *,
        limit: int | None = None,
        topic: str | None = None,
        id: Ids = None,
        where: Callable[[UnroutedJob], bool] | None = None,
    ) -> AsyncIterator[UnroutedJob]:
        """Yield the jobs that could not be routed, and leave them in the queue.

        Jobs are fetched in batches of 100. Those that were fetched are hidden from other clients
        until the iteration ends.
        """
        one_pass = self._queue.looking(topic, id, where, limit)
        try:
            while batch := await self._drive(one_pass.next_found()):
                for job in batch:
                    yield job
        finally:
            one_pass.abandon()

    async def show(self, id: str) -> Sequence[UnroutedJob]:
        """Return the unrouted jobs with this id; ids are not unique."""
        return await self._drive(self._queue.show(id))

    async def retry(
        self,
        *,
        topic: str | None = None,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[UnroutedJob], bool] | None = None,
        timeout: float | None = None,
        on_tried: OnTried[UnroutedJob] | None = None,
    ) -> SentJobs:
        """Publish jobs again with their remaining delay; missing queues are declared.

        Jobs that cannot be parsed stay. If the call is interrupted, a job may exist twice, but none
        is lost. The arguments are those of `BuriedJobs.kick`.

        Raises:
            OutcomeUnknown: A copy was not confirmed within the timeout; its job is still unrouted.
            TopologyMissing: The namespace does not exist.
        """
        flow = self._queue.retry(topic, id, where, limit, timeout=timeout, on_tried=on_tried)
        return await self._drive(flow)

    async def drop(
        self,
        *,
        topic: str | None = None,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[UnroutedJob], bool] | None = None,
    ) -> int:
        """Remove unrouted jobs for good, all of them by default; return how many."""
        return await self._drive(self._queue.drop_chosen(topic, id, where, limit))

    async def _drive(self, flow: Flow[Result]) -> Result:
        return await drive(flow, self._queue.source)
