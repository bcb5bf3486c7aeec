"""Write records to the log of deletes: delete, delete_many, replace, purge, pause and resume.

Each operation returns when the broker has confirmed its record. No consumer has to be running: a
consumer that starts later, even a year later, reads the log before it hands out a job.
"""

from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import (
    Delete,
    Exact,
    Horizon,
    Keep,
    Purge,
    Record,
    known_until,
)
from rabbitdelay.core.deletes.tombstones import HORIZON_MS, LONG_MS
from rabbitdelay.core.jobs import ids, validation
from rabbitdelay.core.topology import ladder
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.connections import Connections
from rabbitdelay.engine.deletes.appender import Appender, pending_record
from rabbitdelay.engine.flow import END, Flow, Sleep, Source, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import (
    DeleteManyFailed,
    InvalidJob,
    JobRefused,
    OutcomeUnknown,
    RabbitDelayError,
    TopologyError,
)
from rabbitdelay.models import Job

IDS_A_RECORD = 1_000
RECORDS_AT_ONCE = 16
LONGEST_TICK_SECONDS = 0.2
"""Maximum wait for the clock to reach the next millisecond; one that was set back takes longer."""
OnDeleted = Callable[[int], None]


class LogWriter:
    """Writes records through the publisher of a client. Thread-safe."""

    def __init__(self, connections: Connections, settings: ClientSettings) -> None:
        self._connections = connections
        self._log = settings.topology.log()
        self._max_delay_ms = settings.topology.max_delay_ms
        self._is_bounded = self._max_delay_ms < ladder.MAX_DELAY_MS
        self._clock = settings.clock
        self._monotonic = settings.monotonic
        self._timeout = settings.timeout
        self._horizon_ms = HORIZON_MS

    def delete(self, job: str | Job, timeout: float | None) -> Flow[int]:
        """Delete one job; return the number of recorded ids."""
        record = self._record((self._as_recorded(job),))
        yield from self.append(record, timeout)
        if record.is_by_time:
            yield from self.let_pass(record.time_ms)
        return len(record.jobs)

    def delete_exactly(self, job: Exact, timeout: float | None) -> Flow[None]:
        """Delete the job with this token, whatever the clocks say."""
        return self.append(self._record((job,)), timeout)

    def delete_many(
        self,
        jobs: Iterable[str | Job] | AsyncIterable[str | Job],
        timeout: float | None,
        on_deleted: OnDeleted | None = None,
    ) -> Flow[int]:
        """Delete many jobs, up to 1,000 in a record; return the number of recorded ids."""
        if isinstance(jobs, (str, Job)):
            raise InvalidJob("delete_many takes an iterable of ids or jobs; use delete for one")
        in_flight = _DeletesInFlight(on_deleted)
        source, time_ms, is_more = Source(jobs), 0, True
        try:
            while is_more:
                some, is_more = yield from self._pack(source)
                if some:
                    record = self._record(some)
                    time_ms = record.time_ms if record.is_by_time else time_ms
                    in_flight.add(len(some), (yield from self._send(record, timeout)))
                yield from in_flight.wait_until_at_most(RECORDS_AT_ONCE if is_more else 0)
        except RabbitDelayError as error:
            text = f"delete_many stopped: {error} ({in_flight.deleted:,} deletes are confirmed)"
            raise DeleteManyFailed(text, deleted=in_flight.deleted) from error
        yield from self.let_pass(time_ms)
        return in_flight.deleted

    def keep(self, job: Job, instead_of: Job | None, timeout: float | None) -> Flow[None]:
        """Delete every job with this id except this one."""
        tokens: tuple[str, ...] = ()
        due_ms = job.due_ms
        if instead_of is not None and instead_of.token:
            tokens, due_ms = (instead_of.token,), max(due_ms, instead_of.due_ms)
        record = Keep(job.id, job.token, job.put_ms, due_ms, tokens)
        return self.append(record, timeout)

    def purge(self, topic: str, timeout: float | None) -> Flow[None]:
        """Delete every job of a topic."""
        record = Purge(topic, self._now_ms())
        yield from self.append(record, timeout)
        yield from self.let_pass(record.time_ms)

    def append(self, record: Record, timeout: float | None) -> Flow[None]:
        """Write a record and wait for its confirm."""
        yield Wait((yield from self._send(record, timeout)))

    def ensure_deletable(self, job: Job) -> Flow[None]:
        """Make sure that a job about to be put with a chosen id can be deleted until it is due."""
        if self._is_bounded:
            return
        generated_due_ms = ids.due_ms(job.id)
        if generated_due_ms is None:
            yield from self._raise_horizon(job.due_ms - job.put_ms)
        elif job.due_ms > generated_due_ms + LONG_MS:
            yield from self._write_first(known_until(job.id, job.due_ms))

    def _raise_horizon(self, delay_ms: int) -> Flow[None]:
        """Ask consumers, once, to keep deletes of chosen ids for longer."""
        if delay_ms > self._horizon_ms:
            yield from self._write_first(Horizon(delay_ms))
            self._horizon_ms = delay_ms

    def _write_first(self, record: Record) -> Flow[None]:
        """Write a record before the job is put. In a callback, only send it before the put."""
        # Without waiting for room, because the put that follows has already found room.
        publisher = yield from self._connections.publisher()
        written = Appender(publisher, self._log).append(self._log, records.encode(record))
        if publisher.may_wait():
            yield Wait(written)

    # Helpers

    def _record(self, jobs: tuple[str | Exact, ...]) -> Delete:
        now_ms = self._now_ms()
        return Delete(jobs, now_ms, now_ms + self._max_delay_ms if self._is_bounded else None)

    @staticmethod
    def _as_recorded(job: str | Job) -> str | Exact:
        if isinstance(job, Job):
            return Exact(job.id, job.token, job.due_ms) if job.token else job.id
        return validation.check_id(job)

    def _pack(self, source: Source[str | Job]) -> Flow[tuple[tuple[str | Exact, ...], bool]]:
        """Return the jobs of the next record, and whether there are more."""
        some: list[str | Exact] = []
        while len(some) < IDS_A_RECORD:
            job = yield from source.next()
            if job is END:
                return tuple(some), False
            some.append(self._as_recorded(job))
        return tuple(some), True

    def _send(self, record: Record, timeout: float | None) -> Flow[Future[None]]:
        future: Future[None] = Future()
        label = records.describe(record)

        def resolve(error: Exception | None) -> None:
            if error is None:
                self._connections.learn(record)
                future.set_result(None)
            else:
                future.set_exception(_named(error, label))

        publisher = yield from self._connections.publisher()
        now = self._monotonic()
        deadline = now + (self._timeout if timeout is None else validation.check_timeout(timeout))
        if not (yield from publisher.window.wait(deadline if publisher.may_wait() else now)):
            text = "was never sent: the publish window is full"
            raise OutcomeUnknown(f"{label} {text}", sent=False)
        body = records.encode(record)
        # The first put declares the namespace with its log. Before it there are no jobs to delete.
        publisher.submit(
            pending_record(
                self._log, body, label, resolve, now=now, deadline=deadline, may_found=False
            )
        )
        return future

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def let_pass(self, time_ms: int) -> Flow[None]:
        """Wait until the time of a delete has passed, so that it spares jobs put afterwards."""
        deadline = self._monotonic() + LONGEST_TICK_SECONDS
        while (rest_ms := time_ms + 1 - self._clock() * 1000) > 0 and self._monotonic() < deadline:
            yield Sleep(min(rest_ms, 1.0) / 1000)


def _named(error: Exception, what: str) -> Exception:
    """Return an error that names the failed operation; timeouts name it themselves."""
    if not isinstance(error, (TopologyError, JobRefused)):
        return error
    named = type(error)(f"{what} failed: {error}")
    named.__cause__ = error
    return named


class _DeletesInFlight:
    """The records of one delete_many that are in flight."""

    def __init__(self, on_deleted: OnDeleted | None) -> None:
        self.deleted = 0
        self._on_deleted = on_deleted
        self._records: deque[tuple[int, Future[None]]] = deque()

    def add(self, count: int, future: Future[None]) -> None:
        """Note a record in flight with its number of ids."""
        self._records.append((count, future))

    def wait_until_at_most(self, most: int) -> Flow[None]:
        """Wait until at most this many records are in flight."""
        while len(self._records) > most:
            count, future = self._records.popleft()
            yield Wait(future)
            self.deleted += count
            if self._on_deleted is not None:
                self._on_deleted(self.deleted)
