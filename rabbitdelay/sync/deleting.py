"""Deleting: what is written into the log of deletes for who calls delete, replace, purge or pause.

Every call returns when the broker has the record. It needs no consumer: whoever consumes, now or
in a year, reads the log before it hands out a job.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

from rabbitdelay.core import identity, intake, ladder, records
from rabbitdelay.core.outbox import Pending
from rabbitdelay.core.records import Delete, Exact, Horizon, Keep, Purge, Record
from rabbitdelay.core.tombstones import GRACE_MS, HORIZON_MS
from rabbitdelay.core.topology import Topology
from rabbitdelay.errors import DeleteManyFailed, InvalidJob, OutcomeUnknown, RabbitDelayError
from rabbitdelay.models import Job, JobSpec
from rabbitdelay.sync.appending import pending_record
from rabbitdelay.sync.links import Links

IDS_A_RECORD = 1_000
RECORDS_AT_ONCE = 16
OnDeleted = Callable[[int], None]


class Deleter:
    """Writes into the log through the publisher of a client; from any thread."""

    def __init__(
        self, links: Links, topology: Topology, clock: Callable[[], float], timeout: float
    ) -> None:
        self._links = links
        self._log = topology.log()
        self._is_bounded = topology.max_delay_ms < ladder.MAX_DELAY_MS
        self._max_delay_ms = topology.max_delay_ms
        self._clock = clock
        self._timeout = timeout
        self._horizon_ms = HORIZON_MS

    def delete(self, target: str | Job, timeout: float | None) -> None:
        """Delete one job."""
        record = self._record((self._target(target),))
        self.append(record, timeout)
        self._pass(record.time_ms)

    def delete_many(
        self,
        targets: Iterable[str | Job],
        timeout: float | None,
        on_deleted: OnDeleted | None = None,
    ) -> int:
        """Delete many jobs, many in a record; return how many."""
        deleted, time_ms = 0, 0
        on_their_way: deque[tuple[int, Future[None]]] = deque()

        def settle(most: int) -> None:
            nonlocal deleted
            while len(on_their_way) > most:
                count, future = on_their_way.popleft()
                future.result()
                deleted += count
                if on_deleted is not None:
                    on_deleted(deleted)

        try:
            for some in self._packed(targets):
                record = self._record(some)
                time_ms = record.time_ms
                on_their_way.append((len(some), self._send(record, timeout)))
                settle(RECORDS_AT_ONCE)
            settle(0)
        except RabbitDelayError as error:
            text = f"delete_many stopped, with {deleted:,} deleted for sure: {error}"
            raise DeleteManyFailed(text, deleted=deleted) from error
        self._pass(time_ms)
        return deleted

    def keep(self, job: Job, instead_of: str | None, timeout: float | None) -> None:
        """Let only this one of its id live."""
        tokens = (instead_of,) if instead_of else ()
        self.append(Keep(job.id, job.token, job.put_ms, job.due_ms, tokens), timeout)

    def purge(self, topic: str, timeout: float | None) -> None:
        """Delete everything in a topic."""
        record = Purge(topic, self._now_ms())
        self.append(record, timeout)
        self._pass(record.time_ms)

    def append(self, record: Record, timeout: float | None) -> None:
        """Write a record, and wait until the broker has it."""
        self._send(record, timeout).result()

    def make_way(self, spec: JobSpec, job: Job) -> None:
        """See to it that a job about to be put can be deleted for as long as it is delayed."""
        if spec.id is None or self._is_bounded:
            return
        generated_due_ms = identity.due_ms(job.id)
        if generated_due_ms is None:
            self._raise_horizon(job.due_ms - job.put_ms)
        elif job.due_ms > generated_due_ms + GRACE_MS // 2:
            raise InvalidJob(
                f"id {job.id} was generated for a job that is due earlier: a delete of it would "
                "not last. Leave the id out, choose one, or use replace"
            )

    def _raise_horizon(self, delay_ms: int) -> None:
        """Tell consumers that deletes of chosen ids must be kept for longer, once."""
        if delay_ms <= self._horizon_ms:
            return
        written = self._send(Horizon(delay_ms), None)
        if not self._links.is_on_publishers_thread:
            written.result()
        self._horizon_ms = delay_ms

    # Pieces

    def _record(self, targets: tuple[str | Exact, ...]) -> Delete:
        now_ms = self._now_ms()
        return Delete(targets, now_ms, now_ms + self._max_delay_ms if self._is_bounded else None)

    @staticmethod
    def _target(target: str | Job) -> str | Exact:
        if isinstance(target, Job):
            return Exact(target.id, target.token, target.due_ms) if target.token else target.id
        return intake.check_id(target)

    def _packed(self, targets: Iterable[str | Job]) -> Iterator[tuple[str | Exact, ...]]:
        some: list[str | Exact] = []
        for target in targets:
            some.append(self._target(target))
            if len(some) == IDS_A_RECORD:
                yield tuple(some)
                some.clear()
        if some:
            yield tuple(some)

    def _send(self, record: Record, timeout: float | None) -> Future[None]:
        future: Future[None] = Future()

        def resolve(_pending: Pending, error: Exception | None) -> None:
            future.set_exception(error) if error is not None else future.set_result(None)

        publisher, window = self._links.publisher(), self._links.window
        now = time.monotonic()
        deadline = now + (self._timeout if timeout is None else timeout)
        if not window.enter(now if publisher.on_own_thread else deadline):
            text = "never sent: too many puts are waiting for the broker"
            raise OutcomeUnknown(text, sent=False)
        try:
            publisher.submit(pending_record(self._log, records.encode(record), deadline, resolve))
        except BaseException:
            window.leave_unsent()
            raise
        return future

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _pass(self, time_ms: int) -> None:
        """Let the moment of a delete pass: what is put after it under the same id must live."""
        if self._now_ms() <= time_ms:
            time.sleep(0.001)
