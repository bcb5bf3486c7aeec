"""The buried queue of a topic: list, show, kick and drop its jobs."""

from collections.abc import Callable

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.parked.parked_job import Choice, Ids, SentJobs
from rabbitdelay.core.publish.outbox import LadderEntry
from rabbitdelay.core.settle import republish
from rabbitdelay.engine.administration.queue_queries import QueueQueries
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.connections import Connections
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.flow import Flow, Sleep
from rabbitdelay.engine.parked.parked_queue import OnTried, ParkedQueue, Pass
from rabbitdelay.engine.parked.sending import Copy
from rabbitdelay.errors import CutOff

PROOF_SECONDS = 0.005
"""Interval between checks whether all deletes of a job are known."""
READ_AGAIN_SECONDS = 0.05
"""Interval between attempts to read the log of deletes to its end."""


class BuriedQueue(ParkedQueue[BuriedJob]):
    """Reads and republishes the buried jobs of one topic."""

    def __init__(
        self,
        connections: Connections,
        settings: ClientSettings,
        topic: str,
        *,
        log_reader: Callable[[], Flow[LogReader]],
    ) -> None:
        super().__init__(connections, settings, settings.topology.buried_queue(topic))
        self._topic = topic
        self._log_reader = log_reader
        self._clock = settings.clock

    def looking(
        self,
        ids: Ids,
        where: Callable[[BuriedJob], bool] | None,
        limit: int | None,
        *,
        check_deletes: bool,
    ) -> "BuriedPass":
        """Return a pass that lists jobs."""
        return BuriedPass(self, Choice(ids, where), limit, check_deletes=check_deletes)

    def show(self, id: str, *, check_deletes: bool) -> Flow[tuple[list[BuriedJob], int]]:
        """Return the jobs with an id, and the number of deleted jobs that were dropped."""
        one_pass = self.looking(id, None, None, check_deletes=check_deletes)
        found: list[BuriedJob] = []
        while batch := (yield from one_pass.next_found()):
            found += batch
        return found, one_pass.dropped_deleted

    def kick(
        self,
        ids: Ids,
        where: Callable[[BuriedJob], bool] | None,
        limit: int | None,
        *,
        timeout: float | None,
        on_tried: OnTried[BuriedJob] | None,
    ) -> Flow[SentJobs]:
        """Make jobs ready again, from attempt 1, and declare the ready queue if it is missing."""
        is_dead = self.is_dead if (yield from self.reads_deletes()) else None
        return (
            yield from self.send_on(
                Choice(ids, where), limit, timeout=timeout, is_dead=is_dead, on_tried=on_tried
            )
        )

    def drop_chosen(
        self, ids: Ids, where: Callable[[BuriedJob], bool] | None, limit: int | None
    ) -> Flow[int]:
        """Remove jobs for good; return their number."""
        return self.drop(Choice(ids, where), limit)

    def reads_deletes(self) -> Flow[bool]:
        """Read the log of deletes to its end; return whether the log exists.

        A missing log is not created.
        """
        side = yield from self.connections.consuming_side()
        queries = QueueQueries(side.consumer, self.timeout)
        if (yield from queries.count(self.topology.tombstones)) is None:
            return False
        yield from self._current_log_reader(self.monotonic() + self.timeout)
        return True

    def is_dead(self, found: BuriedJob) -> Flow[bool]:
        """Return whether a job is deleted. Tombstones of old jobs are read from the log.

        A buried job may be older than the tombstones that consumers keep, and a kick renews it.
        A message that is not a job cannot have been deleted.
        """
        job = found.job
        if job is None:
            return False
        deadline = self.monotonic() + self.timeout
        while True:
            log_reader = yield from self._current_log_reader(deadline)
            if log_reader.check.is_sure_of(job, found.message):
                return log_reader.known.death_of(job, found.message) is not None
            if self.monotonic() > deadline:
                raise CutOff(
                    "the log of deletes does not respond, so the deleted jobs are unknown: check "
                    "the broker and try again"
                )
            yield Sleep(PROOF_SECONDS)  # the log is being read, or a fence is in flight

    def _current_log_reader(self, deadline: float) -> Flow[LogReader]:
        while True:
            try:
                return (yield from self._log_reader())
            except CutOff:
                if self.monotonic() > deadline:
                    raise
            yield Sleep(READ_AGAIN_SECONDS)

    def read(self, exchange: str, routing_key: str, message: Message) -> BuriedJob:
        """Return a buried job. Its topic is that of the queue, regardless of the routing key."""
        del exchange, routing_key
        return BuriedJob(message, self._topic)

    def copy(self, found: BuriedJob) -> Copy:
        """Return the copy to make ready. A message that is not a job will be buried again."""
        now_ms = int(self._clock() * 1000)
        kicked = republish.kicked(found.message, now_ms=now_ms)
        return Copy(kicked, LadderEntry(self._topic, 0))

    def why_missing(self) -> str:
        """Return the reason why the queue does not exist, although its namespace does."""
        return f"nothing was ever put to topic {self._topic} in {self.topology.namespace}"


class BuriedPass(Pass[BuriedJob]):
    """Lists buried jobs, and drops deleted ones if it checks the log of deletes."""

    def __init__(
        self,
        queue: BuriedQueue,
        choice: Choice[BuriedJob],
        limit: int | None,
        *,
        check_deletes: bool,
    ) -> None:
        super().__init__(queue, choice, limit)
        self._buried = queue
        self._check_deletes = check_deletes

    def _begin(self) -> Flow[None]:
        if self._check_deletes and (yield from self._buried.reads_deletes()):
            self._is_dead = self._buried.is_dead
        yield from super()._begin()
