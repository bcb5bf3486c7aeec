"""Parked jobs: what people do with the jobs that are buried or could not be routed."""

from collections.abc import Callable, Iterator, Sequence

from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.parked.parked_job import Ids, SentJobs
from rabbitdelay.core.parked.unrouted import UnroutedJob
from rabbitdelay.engine.parked.buried_queue import BuriedQueue
from rabbitdelay.engine.parked.parked_queue import OnTried
from rabbitdelay.engine.parked.unrouted_queue import UnroutedQueue
from rabbitdelay.executors.blocking import drive


class BuriedJobs:
    """The jobs of one topic that were given up on; returned by `Client.buried`.

    Looking at jobs changes nothing, except that jobs which are deleted are dropped in passing. What
    a call has taken is back in the queue when it returns, or when its iterator is closed.
    """

    def __init__(self, queue: BuriedQueue) -> None:
        self._queue = queue
        self._dropped_deleted = 0

    def __repr__(self) -> str:
        return f"BuriedJobs({self._queue.name!r})"

    @property
    def dropped_deleted(self) -> int:
        """How many deleted jobs `list` and `show` have dropped in passing."""
        return self._dropped_deleted

    def count(self) -> int:
        """Count the buried jobs of the topic.

        Raises:
            TopologyMissing: The topic does not exist.
        """
        return drive(self._queue.count())

    def list(
        self,
        *,
        limit: int | None = None,
        id: Ids = None,
        where: Callable[[BuriedJob], bool] | None = None,
        check_deletes: bool = True,
    ) -> Iterator[BuriedJob]:
        """Yield buried jobs, and leave them in the queue.

        The jobs are fetched in batches of 100 as they are asked for. Until the last one, all that
        came before are held: other clients cannot see them.

        Args:
            limit: How many jobs at most. Default: all.
            id: The id of the job, or several ids. Default: every id.
            where: Only the jobs for which this returns True.
            check_deletes: Whether deleted jobs are left out, and dropped. With False the log of
                deletes is not read.

        Raises:
            CutOff: The log of deletes cannot be read.
            TopologyMissing: The topic does not exist.
        """
        one_pass = self._queue.looking(id, where, limit, check_deletes=check_deletes)
        try:
            while batch := drive(one_pass.next_found()):
                yield from batch
        finally:
            self._dropped_deleted += one_pass.dropped_deleted
            one_pass.abandon()

    def show(self, id: str, *, check_deletes: bool = True) -> Sequence[BuriedJob]:
        """Return the buried jobs with this id: an id may be there several times."""
        found, dropped = drive(self._queue.show(id, check_deletes=check_deletes))
        self._dropped_deleted += dropped
        return found

    def kick(
        self,
        *,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[BuriedJob], bool] | None = None,
        timeout: float | None = None,
        on_tried: OnTried[BuriedJob] | None = None,
    ) -> SentJobs:
        """Make buried jobs ready again, now: their attempts begin again at 1.

        Each job leaves the buried queue after the broker has confirmed its copy. A job may be there
        twice if this is interrupted, and is never lost. Jobs that are deleted are dropped. What is
        buried again meanwhile waits for the next kick.

        Args:
            id: The id of the job, or several ids. Default: every job.
            limit: How many jobs at most. Default: all.
            where: Only the jobs for which this returns True.
            timeout: How long the broker may take to confirm a copy, in seconds. Default: the
                client's.
            on_tried: Called with each job, and whether it was kicked.

        Raises:
            OutcomeUnknown: A copy was not confirmed in time; its job is still buried.
            CutOff: The log of deletes cannot be read.
            TopologyMissing: The topic does not exist.
        """
        return drive(self._queue.kick(id, where, limit, timeout=timeout, on_tried=on_tried))

    def drop(
        self,
        *,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[BuriedJob], bool] | None = None,
    ) -> int:
        """Remove buried jobs for good, all of them by default; return how many."""
        return drive(self._queue.drop_chosen(id, where, limit))


class UnroutedJobs:
    """The jobs that could not be routed; returned by `Client.unrouted`.

    Looking at jobs changes nothing. What a call has taken is back in the queue when it returns, or
    when its iterator is closed.
    """

    def __init__(self, queue: UnroutedQueue) -> None:
        self._queue = queue

    def __repr__(self) -> str:
        return f"UnroutedJobs({self._queue.name!r})"

    def count(self) -> int:
        """Count the jobs that could not be routed.

        Raises:
            TopologyMissing: The namespace does not exist.
        """
        return drive(self._queue.count())

    def list(
        self,
        *,
        limit: int | None = None,
        topic: str | None = None,
        id: Ids = None,
        where: Callable[[UnroutedJob], bool] | None = None,
    ) -> Iterator[UnroutedJob]:
        """Yield the jobs that could not be routed, and leave them in the queue.

        The jobs are fetched in batches of 100 as they are asked for. Until the last one, all that
        came before are held: other clients cannot see them.
        """
        one_pass = self._queue.looking(topic, id, where, limit)
        try:
            while batch := drive(one_pass.next_found()):
                yield from batch
        finally:
            one_pass.abandon()

    def show(self, id: str) -> Sequence[UnroutedJob]:
        """Return the unrouted jobs with this id: an id may be there several times."""
        return drive(self._queue.show(id))

    def retry(
        self,
        *,
        topic: str | None = None,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[UnroutedJob], bool] | None = None,
        timeout: float | None = None,
        on_tried: OnTried[UnroutedJob] | None = None,
    ) -> SentJobs:
        """Send jobs on with the rest of their delay; topics that are missing are made.

        Jobs that cannot be understood stay. A job may be there twice if this is interrupted, and is
        never lost. The arguments are those of `BuriedJobs.kick`.

        Raises:
            OutcomeUnknown: A copy was not confirmed in time; its job is still unrouted.
            TopologyMissing: The namespace does not exist.
        """
        flow = self._queue.retry(topic, id, where, limit, timeout=timeout, on_tried=on_tried)
        return drive(flow)

    def drop(
        self,
        *,
        topic: str | None = None,
        id: Ids = None,
        limit: int | None = None,
        where: Callable[[UnroutedJob], bool] | None = None,
    ) -> int:
        """Remove unrouted jobs for good, all of them by default; return how many."""
        return drive(self._queue.drop_chosen(topic, id, where, limit))
