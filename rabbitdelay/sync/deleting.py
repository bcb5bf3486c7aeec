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
from rabbitdelay.core.records import Delete, Exact, Horizon, Keep, Purge, Record, known_until
from rabbitdelay.core.tombstones import HORIZON_MS, LONG_MS
from rabbitdelay.core.topology import Topology
from rabbitdelay.errors import DeleteManyFailed, InvalidJob, OutcomeUnknown, RabbitDelayError
from rabbitdelay.models import Job
from rabbitdelay.sync.appending import Appender, pending_record
from rabbitdelay.sync.links import Links

IDS_A_RECORD = 1_000
RECORDS_AT_ONCE = 16
LONGEST_TICK_SECONDS = 0.2
"""How long a clock may take to tell another millisecond; one that was set back takes longer."""
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
        self.let_pass(record.time_ms)

    def delete_many(
        self,
        targets: Iterable[str | Job],
        timeout: float | None,
        on_deleted: OnDeleted | None = None,
    ) -> int:
        """Delete many jobs, many in a record; return how many."""
        if isinstance(targets, (str, Job)):
            raise InvalidJob("delete_many takes several ids or jobs: use delete for one")
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
        self.let_pass(time_ms)
        return deleted

    def keep(self, job: Job, instead_of: Job | None, timeout: float | None) -> None:
        """Let only this one of its id live."""
        tokens: tuple[str, ...] = ()
        due_ms = job.due_ms
        if instead_of is not None and instead_of.token:
            tokens, due_ms = (instead_of.token,), max(due_ms, instead_of.due_ms)
        record = Keep(job.id, job.token, job.put_ms, due_ms, tokens)
        self.append(record, timeout)

    def purge(self, topic: str, timeout: float | None) -> None:
        """Delete everything in a topic."""
        record = Purge(topic, self._now_ms())
        self.append(record, timeout)
        self.let_pass(record.time_ms)

    def append(self, record: Record, timeout: float | None) -> None:
        """Write a record, and wait until the broker has it."""
        self._send(record, timeout).result()

    def make_way(self, job: Job) -> None:
        """See to it that a job about to be put under an id can be deleted until it is due."""
        if self._is_bounded:
            return
        generated_due_ms = identity.due_ms(job.id)
        if generated_due_ms is None:
            self._raise_horizon(job.due_ms - job.put_ms)
        elif job.due_ms > generated_due_ms + LONG_MS:
            self._write_first(known_until(job.id, job.due_ms))

    def _raise_horizon(self, delay_ms: int) -> None:
        """Tell consumers that deletes of chosen ids must be kept for longer, once."""
        if delay_ms > self._horizon_ms:
            self._write_first(Horizon(delay_ms))
            self._horizon_ms = delay_ms

    def _write_first(self, record: Record) -> None:
        """Write what must be known before a job is put; in a callback, only ahead of it."""
        # Without room in the window: the put that waits for this has a place in it already.
        written = Appender(self._links.publisher()).append(self._log, records.encode(record))
        if not self._links.is_on_publishers_thread:
            written.result()

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

    def let_pass(self, time_ms: int) -> None:
        """Let the moment of a delete pass: what is put after it under the same id must live."""
        deadline = time.monotonic() + LONGEST_TICK_SECONDS
        while (rest_ms := time_ms + 1 - self._clock() * 1000) > 0 and time.monotonic() < deadline:
            time.sleep(min(rest_ms, 1.0) / 1000)
