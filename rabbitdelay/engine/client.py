"""The operations of a client, as flows that both front ends drive."""

import secrets
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Self

from rabbitdelay import duration
from rabbitdelay.address import Address
from rabbitdelay.core.administration.counts import Listing, Statistics, TopicCounts
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.records import Exact, Pause, Resume
from rabbitdelay.core.doctor.report import Check
from rabbitdelay.core.jobs import envelope, validation
from rabbitdelay.core.publish.pending import LadderEntry, Pending
from rabbitdelay.core.topology.setup import namespace_missing
from rabbitdelay.core.work.responses import Response
from rabbitdelay.engine.administration.administration import Administration
from rabbitdelay.engine.administration.job_counts import JobCounter, count_topics
from rabbitdelay.engine.administration.local_node import FindLocalNode
from rabbitdelay.engine.administration.management_queries import ManagementQueries
from rabbitdelay.engine.administration.queue_queries import QueueQueries
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.connections import Connections
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consuming_side import ConsumingSide
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.deletes.writer import LogWriter, OnDeleted
from rabbitdelay.engine.doctor.examination import Examination, OnStep
from rabbitdelay.engine.flow import END, Flow, Sleep, Source, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.parked.buried_queue import BuriedQueue
from rabbitdelay.engine.parked.unrouted_queue import UnroutedQueue
from rabbitdelay.engine.peers.peer_group import PeerGroup
from rabbitdelay.engine.pop.popper import MAX_AT_ONCE
from rabbitdelay.engine.publish.batch import Batch, OnConfirmed, OnPositionConfirmed
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.settle.leased_job import LeasedJob
from rabbitdelay.engine.transport import Transport, nothing
from rabbitdelay.engine.transport_source import TransportSource
from rabbitdelay.errors import (
    CutOff,
    InvalidJob,
    ManagementUnreachable,
    OutcomeUnknown,
    RabbitDelayError,
)
from rabbitdelay.models import Job, JobSpec

Duration = float | timedelta | None
"""Maximum wait, in seconds or as a timedelta; None waits without limit."""
Resolved = Callable[..., None]
"""Called with the context that was given with it, the job, and its error or None."""
OWN_RECORD_SECONDS = 1.0
"""Maximum wait until a client has read back a record that it wrote."""
PAUSES_SECONDS = 5.0
"""Maximum wait of `stats` for the log of deletes, after which it reports counts without pauses."""
POLL_SECONDS = 0.05


class ClientEngine:
    """Implements one client, without the driver."""

    def __init__(
        self,
        new_transport: Callable[[str], Transport],
        addresses: Sequence[Address],
        settings: ClientSettings,
        find_local_node: FindLocalNode,
    ) -> None:
        self.addresses = addresses
        self.settings = settings
        self.topology = settings.topology
        self.connections = Connections(new_transport, addresses, settings)
        self._log_writer = LogWriter(self.connections, settings)
        self._find_local_node = find_local_node
        self._management = ManagementQueries(addresses, settings, find_local_node)
        self._counter = JobCounter(self.topology, self._management)
        # None of these may refer to this object. It is then collected as soon as the application
        # drops its client, which ends the client's threads.
        self.administration = Administration(
            self.connections.side_connection, addresses[0].vhost, settings, self._management
        )

    @classmethod
    def over(cls, source: TransportSource, settings: ClientSettings, *, is_async: bool) -> Self:
        """Return an engine that does not use a driver."""

        def new_transport(name: str) -> Transport:
            return source.new_transport(name, is_async=is_async)

        return cls(new_transport, source.locate(settings.url), settings, nothing)

    def __str__(self) -> str:
        addresses = ",".join(map(str, self.addresses))
        return f"({addresses!r}, namespace={self.topology.namespace!r})"

    def connect(self) -> Flow[None]:
        """Connect now instead of with the first put."""
        yield from self.connections.publisher()

    # Putting

    def put(self, spec: JobSpec, timeout: float | None, *, reply: bool = False) -> Flow[Job]:
        """Put a job, and wait until the broker has confirmed it."""
        self._refuse_to_wait()
        job: Job = yield Wait((yield from self.put_nowait(spec, timeout, reply=reply)))
        return job

    def put_nowait(
        self,
        spec: JobSpec,
        timeout: float | None,
        *,
        reply: bool = False,
        after_ms: int = 0,
        attempt: int = 1,
    ) -> Flow[Future[Job]]:
        """Put a job, waiting only while the publish window is full."""
        if reply:
            spec = yield from self._with_reply_to(spec)
        future: Future[Job] = Future()
        future.set_running_or_notify_cancel()

        def resolved(job: Job, error: Exception | None) -> None:
            if error is None:
                future.set_result(job)
            else:
                future.set_exception(error)

        yield from self._send(spec, timeout, resolved, after_ms=after_ms, attempt=attempt)
        return future

    def put_many(
        self,
        specs: Iterable[JobSpec] | AsyncIterable[JobSpec],
        timeout: float | None,
        on_confirmed: OnConfirmed | None,
    ) -> Flow[int]:
        """Put many jobs; return the number that the broker has confirmed."""
        if on_confirmed is None:
            return self.put_each(specs, timeout, None)
        return self.put_each(specs, timeout, lambda _position, job: on_confirmed(job))

    def put_each(
        self,
        specs: Iterable[JobSpec] | AsyncIterable[JobSpec],
        timeout: float | None,
        on_confirmed: OnPositionConfirmed | None,
    ) -> Flow[int]:
        """Put many jobs, and tell the position in the input of each confirmed one."""
        self._refuse_to_wait()
        batch, source = Batch(on_confirmed), Source(specs)
        while not batch.failed:
            try:
                spec = yield from source.next()
            except Exception as error:  # noqa: BLE001 - raised by the caller's iterable
                batch.refuse(batch.take(), error)
                break
            if spec is END:
                break
            position = batch.take()
            try:
                yield from self._send(spec, timeout, batch.resolved, position)
            except RabbitDelayError as error:
                batch.refuse(position, error)
        return (yield from batch.wait())

    def replace(self, spec: JobSpec, timeout: float | None) -> Flow[Job]:
        """Put a job, and delete the earlier jobs with the same id."""
        if spec.id is None:
            raise InvalidJob("replace needs the id of the job to replace")
        return self._replace(spec, None, timeout)

    def reschedule(
        self,
        job: Job,
        delay: float | timedelta | None,
        at: datetime | None,
        timeout: float | None,
    ) -> Flow[Job]:
        """Put a job again with another due time, and delete the old one."""
        if not isinstance(job, Job):
            raise InvalidJob("reschedule needs the job that put returned: use replace with an id")
        if delay is None and at is None:
            raise InvalidJob("reschedule() requires either `delay` or `at`")
        asked = job.as_put() if isinstance(job, LeasedJob) else job
        spec = validation.same_at(asked, delay=0 if delay is None else delay, at=at)
        return self._replace(spec, job, timeout)

    # Deleting

    def delete(self, job: str | Job, timeout: float | None) -> Flow[int]:
        """Delete a job, and wait until the delete is durable; return the number of recorded ids."""
        self._refuse_to_wait()
        return self._log_writer.delete(job, timeout)

    def delete_exactly(self, id: str, token: str, due_ms: int, timeout: float | None) -> Flow[None]:
        """Delete the job with this token, for a caller that does not have the Job."""
        self._refuse_to_wait()
        exact = Exact(validation.check_id(id), token, due_ms)
        return self._log_writer.delete_exactly(exact, timeout)

    def delete_many(
        self,
        jobs: Iterable[str | Job] | AsyncIterable[str | Job],
        timeout: float | None,
        on_deleted: OnDeleted | None,
    ) -> Flow[int]:
        """Delete many jobs; return the number of recorded ids."""
        self._refuse_to_wait()
        return self._log_writer.delete_many(jobs, timeout, on_deleted)

    def purge(self, topic: str, timeout: float | None) -> Flow[int]:
        """Delete every job put to a topic until now; return the number removed at once.

        Those are the jobs in the ready and the buried queue. Delayed jobs and jobs that a consumer
        has received are covered by the tombstone.
        """
        self._refuse_to_wait()
        yield from self._log_writer.purge(validation.check_topic(topic), timeout)
        queries = yield from self._queue_queries()
        gone = 0
        for queue in (self.topology.ready_queue(topic), self.topology.buried_queue(topic)):
            gone += (yield from queries.purge(queue)) or 0
        return gone

    def pause(self, topic: str, timeout: float | None) -> Flow[None]:
        """Pause a topic: no consumer hands out its jobs until `resume()`."""
        self._refuse_to_wait()
        yield from self._log_writer.append(Pause(validation.check_topic(topic)), timeout)
        yield from self._until_known(lambda known: known.is_paused(topic))

    def resume(self, topic: str, timeout: float | None) -> Flow[None]:
        """Resume a paused topic."""
        self._refuse_to_wait()
        yield from self._log_writer.append(Resume(validation.check_topic(topic)), timeout)
        yield from self._until_known(lambda known: not known.is_paused(topic))

    def _until_known(self, is_known: Callable[[KnownDeletes], bool]) -> Flow[None]:
        """Wait briefly until this client has read its own record, if it reads the log."""
        log_reader = self.connections.current_log_reader
        deadline = self.settings.monotonic() + OWN_RECORD_SECONDS
        while log_reader is not None and log_reader.is_current and not is_known(log_reader.known):
            if self.settings.monotonic() > deadline:
                return
            yield Sleep(0.001)

    # Inspecting

    def topics(self, names: Sequence[str]) -> Flow[list[TopicCounts]]:
        """Count the jobs of these topics, or of all, with the state of each topic."""
        paused = (yield from self.log_reader()).known.paused()
        chosen = [validation.check_topic(name) for name in names]
        try:
            listing = yield from self._management.listing(self.topology)
        except ManagementUnreachable as error:
            if not chosen:
                raise ManagementUnreachable(f"{error}; or name the topics") from None
            listing = Listing()
        queries = yield from self._queue_queries()
        names = chosen or listing.topics
        found = yield from count_topics(queries, self.topology, names, listing, paused)
        return [count for count in found.values() if count is not None]

    def count(self, topic: str) -> Flow[TopicCounts | None]:
        """Count the jobs in the queues of a topic; None if the topic does not exist."""
        queries = yield from self._queue_queries()
        name = validation.check_topic(topic)
        return (yield from count_topics(queries, self.topology, [name], Listing()))[name]

    def stats(self, names: Sequence[str], *, delayed: bool) -> Flow[Statistics]:
        """Count the jobs of these topics, or of all, and optionally the delayed jobs."""
        chosen = [validation.check_topic(name) for name in names]
        side = yield from self.connections.consuming_side()
        queries = QueueQueries(side.consumer, self.settings.timeout)
        try:
            paused = yield from self._paused(side, queries)
        except CutOff as error:
            found = yield from self._counter.count(queries, chosen, None, delayed=delayed)
            return replace(found, deletes_error=str(error))
        return (yield from self._counter.count(queries, chosen, paused, delayed=delayed))

    def examine(
        self, longest_ttr: float | timedelta, on_step: OnStep | None
    ) -> Flow[tuple[Check, ...]]:
        """Check the broker and the namespace."""
        examination = Examination(
            self.connections.side_connection,
            self.settings,
            self.addresses,
            self._management,
            self._find_local_node,
            on_step or nothing,
        )
        return examination.checks(validation.check_ttr_ms(longest_ttr))

    def _paused(self, side: ConsumingSide, queries: QueueQueries) -> Flow[Collection[str]]:
        """Return the paused topics; wait only briefly, and do not create a missing log."""
        if (yield from queries.count(self.topology.tombstones)) is None:
            if not (yield from queries.is_there(self.topology.unrouted)):
                raise namespace_missing(self.topology)
            return ()
        deadline = self.settings.monotonic() + min(PAUSES_SECONDS, self.settings.timeout)
        log_reader = yield from side.until_read(min(PAUSES_SECONDS, self.settings.timeout))
        while not log_reader.is_current:
            if self.settings.monotonic() > deadline:
                raise CutOff(str(log_reader.status.failure or log_reader.status.text))
            yield Sleep(POLL_SECONDS)
        return log_reader.known.paused()

    def log_reader(self, timeout: float | None = None) -> Flow[LogReader]:
        """Return the reader of the log of deletes once it has read the log to its end."""
        side = yield from self.connections.consuming_side()
        seconds = self.settings.timeout if timeout is None else timeout
        log_reader = yield from side.until_read(seconds)
        if not log_reader.is_current:
            raise log_reader.status.failure or CutOff(log_reader.status.text)
        return log_reader

    def known_deletes(self, timeout: float) -> Flow[LogReader | None]:
        """Return the reader of the log of deletes; None if nothing was ever put or deleted."""
        queries = yield from self._queue_queries()
        if (yield from queries.count(self.topology.tombstones)) is None:
            return None
        return (yield from self.log_reader(timeout))

    # Parked jobs

    def buried(self, topic: str) -> BuriedQueue:
        """Return the buried queue of a topic."""
        name = validation.check_topic(topic)
        return BuriedQueue(self.connections, self.settings, name, log_reader=self.log_reader)

    def unrouted(self) -> UnroutedQueue:
        """Return the queue of the jobs that could not be routed."""
        return UnroutedQueue(self.connections, self.settings)

    # Reserving

    def pop(
        self, topics: str | Sequence[str], most: int | None, wait: Duration
    ) -> Flow[tuple[Consumer, list[Lease]]]:
        """Reserve the next jobs of these topics; return the consumer and their leases."""
        names = validation.check_topics(topics)
        count = 1 if most is None else validation.check_count(most, "max", MAX_AT_ONCE)
        side = yield from self.connections.consuming_side()
        yield from side.until_read(self.settings.timeout)
        leases = yield from side.popper.pop(names, count, self._deadline(wait))
        return side.consumer, leases

    def pop_problem(self) -> Exception | None:
        """Return the error of a pop that ended now without a job; None if it is not one."""
        side = self.connections.current_consuming_side
        return None if side is None else side.popper.problem

    def response(self, job: Job, wait: Duration) -> Flow[Response | None]:
        """Wait for the response to a job that this client put with `reply`."""
        if not isinstance(job, Job):
            raise InvalidJob("response needs the job that put returned")
        replies = (yield from self.connections.consuming_side()).replies
        if job.reply_to != replies.queue:
            raise InvalidJob(f"job {job.id} was not put with reply=True by this client")
        return (yield from replies.wait(job, self._deadline(wait)))

    def reply_queue(self) -> Flow[str]:
        """Return the name of this client's response queue, and declare it on first use."""
        replies = (yield from self.connections.consuming_side()).replies
        yield from replies.start(self.settings.timeout)
        return replies.queue

    def peers(self) -> Flow[PeerGroup]:
        """Return the clients of the namespace that exchange messages; this one may join them."""
        return (yield from self.connections.consuming_side()).peers

    def close(self, timeout: float | None) -> Flow[None]:
        """Wait for everything that is in flight, and close."""
        return self.connections.close(self._timeout(timeout))

    # Sending

    def _send(
        self,
        spec: JobSpec,
        timeout: float | None,
        resolved: Resolved,
        *context: int,
        after_ms: int = 0,
        attempt: int = 1,
    ) -> Flow[None]:
        publisher = self.connections.ready_publisher() or (yield from self.connections.publisher())
        deadline = self.settings.monotonic() + self._timeout(timeout)
        if not publisher.window.has_room:
            yield from self._wait_for_room(publisher, deadline)
        job = self._make_job(spec, after_ms, attempt)
        if spec.id is not None:
            yield from self._log_writer.ensure_deletable(job)
        publisher.submit(
            Pending(
                envelope.encode(job),
                LadderEntry(job.topic, job.due_ms - job.put_ms),
                self.settings.monotonic(),
                deadline,
                partial(resolved, *context, job),
            )
        )

    def _wait_for_room(self, publisher: Publisher, deadline: float) -> Flow[None]:
        """Wait until the window has room.

        Does not wait on the transport's own thread, in a future's callback, because that thread is
        the one that makes room.
        """
        has_room = yield from publisher.window.wait(
            deadline if publisher.may_wait() else self.settings.monotonic()
        )
        if not has_room:
            raise OutcomeUnknown("put was never sent: the publish window is full", sent=False)

    def _replace(self, spec: JobSpec, old: Job | None, timeout: float | None) -> Flow[Job]:
        self._refuse_to_wait()
        after_ms = self._now_ms()
        yield from self._log_writer.let_pass(after_ms)
        attempt = 1
        if old is not None:
            after_ms, attempt = max(after_ms, old.put_ms), old.attempt
        put = yield from self.put_nowait(spec, timeout, after_ms=after_ms, attempt=attempt)
        job: Job = yield Wait(put)
        yield from self._log_writer.keep(job, old, timeout)
        yield from self._log_writer.let_pass(job.put_ms)
        return job

    def _make_job(self, spec: JobSpec, after_ms: int, attempt: int) -> Job:
        return validation.make_job(
            spec,
            now_ms=max(self._now_ms(), after_ms + 1),
            random_hex=secrets.token_hex(validation.RANDOM_HEX_DIGITS // 2),
            bounds=self.settings.bounds,
            attempt=attempt,
        )

    def _with_reply_to(self, spec: JobSpec) -> Flow[JobSpec]:
        if spec.reply_to is not None:
            raise InvalidJob("give either reply or reply_to, not both")
        return replace(spec, reply_to=(yield from self.reply_queue()))

    # Helpers

    def _queue_queries(self) -> Flow[QueueQueries]:
        side = yield from self.connections.consuming_side()
        return QueueQueries(side.consumer, self.settings.timeout)

    def _timeout(self, timeout: float | None) -> float:
        return self.settings.timeout if timeout is None else validation.check_timeout(timeout)

    def _deadline(self, wait: Duration) -> float | None:
        if wait is None:
            return None
        return self.settings.monotonic() + duration.seconds(wait, what="wait")

    def _now_ms(self) -> int:
        return int(self.settings.clock() * 1000)

    def _refuse_to_wait(self) -> None:
        if not self.connections.may_wait:
            raise RabbitDelayError(
                "this call waits for the broker, and would wait forever on the client's own I/O "
                "thread: use put_nowait() in callbacks"
            )
