"""The client: what people call."""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, overload

from rabbitdelay import duration, locate
from rabbitdelay.core import envelope, intake
from rabbitdelay.core.outbox import Pending
from rabbitdelay.core.records import Pause, Resume
from rabbitdelay.core.responses import Response
from rabbitdelay.core.retry import RetryPolicy
from rabbitdelay.core.setup import SETTLE_SECONDS
from rabbitdelay.core.topology import QueueType, Topology
from rabbitdelay.errors import CutOff, InvalidJob, OutcomeUnknown, RabbitDelayError
from rabbitdelay.models import Job, JobSpec
from rabbitdelay.sync import management
from rabbitdelay.sync.batch import Batch, OnConfirmed
from rabbitdelay.sync.consumer import Consumer
from rabbitdelay.sync.deleting import Deleter, OnDeleted
from rabbitdelay.sync.emptying import empty
from rabbitdelay.sync.following import Follower, TombstoneStats
from rabbitdelay.sync.links import Links
from rabbitdelay.sync.management import Management
from rabbitdelay.sync.overview import TopicCounts, list_topics
from rabbitdelay.sync.popping import MAX_AT_ONCE
from rabbitdelay.sync.reserved import ReservedJob, reserved_job

Wait = float | timedelta | None
"""How long to wait: seconds or a timedelta; None is without a limit."""


class Client:
    """Puts jobs, and takes them one by one. Any number of threads may share one.

    Args:
        url: The broker, `amqp://user:password@host:port/vhost` or `amqps://`; several nodes of a
            cluster with commas between them. Default: RABBITDELAY_URL, else the private node
            that `rabbitdelay broker start` started, else amqp://localhost.
        namespace: What all names on the broker begin with.
        declare: Whether missing exchanges and queues are made. False for locked-down brokers.
        queue_type: "quorum", replicated and safe, or "classic", for one node and most speed.
        timeout: How long a put may take, in seconds, reconnects included.
        connect_timeout: How long to wait for the first connection, in seconds.
        window: How many puts may be on their way at once; further ones wait.
        max_body_bytes: The largest body that is taken.
        settle_seconds: How old a new queue must be before a put through it returns. Less
            than 3 risks the jobs in it when the broker is killed right then.
        retry: How often a job that was popped is tried, and how long is waited in between, when
            the job does not say so itself.
        max_delay: The longest delay that is put in this namespace, at most and by default 9 years.
            Deletes are kept for that long: with much to delete, say how long is long enough. It
            is fixed when the namespace is first used.
        clock: Tells the time, in seconds since 1970; for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "rabbitdelay",
        declare: bool = True,
        queue_type: QueueType = "quorum",
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        window: int = 2_000,
        max_body_bytes: int = intake.DEFAULT_MAX_BODY_BYTES,
        settle_seconds: float = SETTLE_SECONDS,
        retry: RetryPolicy | None = None,
        max_delay: float | timedelta | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._addresses = locate.locate(url)
        max_delay_ms = intake.check_max_delay_ms(max_delay)
        self._topology = Topology(namespace, queue_type, max_delay_ms)
        self._timeout = timeout
        self._clock = clock
        self._bounds = intake.Bounds(max_body_bytes, max_delay_ms)
        self._links = Links(
            self._addresses,
            self._topology,
            declare=declare,
            settle_seconds=settle_seconds,
            connect_timeout=connect_timeout,
            window_puts=window,
            retry=retry or RetryPolicy(),
            clock=clock,
        )
        self._deleter = Deleter(self._links, self._topology, clock, timeout)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        addresses = ",".join(map(str, self._addresses))
        return f"Client({addresses!r}, namespace={self._topology.namespace!r})"

    @property
    def topology(self) -> Topology:
        """The names this client uses on the broker."""
        return self._topology

    def connect(self) -> None:
        """Connect now, and not with the first put."""
        self._links.publisher()

    def put(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - whatever is JSON-able
        *,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        ttr: float | timedelta | None = None,
        id: str | None = None,
        max_attempts: int | None = None,
        callback: str | None = None,
        content_type: str | None = None,
        backoff: float | timedelta | None = None,
        backoff_max: float | timedelta | None = None,
        reply_to: str | None = None,
        reply: bool = False,
        timeout: float | None = None,
    ) -> Job:
        """Put a job, and return when the broker has confirmed it.

        The arguments are those of JobSpec. With `reply`, what its handler returns can be had with
        `response`. The job is guaranteed not to be ready before its time;
        it may be ready slightly after.

        Raises:
            InvalidJob: An argument is wrong; nothing was sent.
            OutcomeUnknown: Not confirmed within the timeout; `sent` tells whether it may arrive.
            TopologyError: A queue is missing, has other arguments, or may not be made.
            ConnectionFailed: There has been no connection to the broker yet.
        """
        self._refuse_on_io_thread()
        spec = JobSpec(
            topic,
            body,
            delay=delay,
            at=at,
            ttr=ttr,
            id=id,
            max_attempts=max_attempts,
            callback=callback,
            content_type=content_type,
            backoff=backoff,
            backoff_max=backoff_max,
            reply_to=self._reply_to(reply_to, reply=reply),
        )
        return self._put_one(spec, timeout).result()

    def put_nowait(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - whatever is JSON-able
        *,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        ttr: float | timedelta | None = None,
        id: str | None = None,
        max_attempts: int | None = None,
        callback: str | None = None,
        content_type: str | None = None,
        backoff: float | timedelta | None = None,
        backoff_max: float | timedelta | None = None,
        reply_to: str | None = None,
        reply: bool = False,
        timeout: float | None = None,
    ) -> Future[Job]:
        """Put a job, and return a future that has the Job when the broker has confirmed it.

        It waits only while the window is full. The future's callbacks run on the I/O thread: they
        must not wait for anything.
        """
        spec = JobSpec(
            topic,
            body,
            delay=delay,
            at=at,
            ttr=ttr,
            id=id,
            max_attempts=max_attempts,
            callback=callback,
            content_type=content_type,
            backoff=backoff,
            backoff_max=backoff_max,
            reply_to=self._reply_to(reply_to, reply=reply),
        )
        return self._put_one(spec, timeout)

    def put_many(
        self,
        specs: Iterable[JobSpec],
        *,
        timeout: float | None = None,
        on_confirmed: OnConfirmed | None = None,
    ) -> int:
        """Put many jobs, from a generator too, and return how many the broker has confirmed.

        `timeout` is for each job. `on_confirmed` is called with each confirmed Job, on the I/O
        thread.

        Raises:
            PutManyFailed: It stopped at the first job that failed, and says which are confirmed.
        """
        self._refuse_on_io_thread()
        batch = Batch(on_confirmed)
        for spec in self._guarded(specs, batch):
            position = batch.take()
            try:
                self._send(spec, timeout, batch.resolved, position)
            except RabbitDelayError as error:
                batch.refuse(position, error)
            if batch.failed:
                break
        return batch.wait()

    def replace(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - whatever is JSON-able
        *,
        id: str,
        timeout: float | None = None,
        **options: Any,  # noqa: ANN401 - those of JobSpec
    ) -> Job:
        """Put a job, and delete what was put under its id before: only the new one lives.

        The other arguments are those of put. The new job is put first: should this fail or crash
        in between, both live, and never none.

        Raises:
            OutcomeUnknown: The new job is put, and whether the old one lives is not known.
        """
        return self._replace(JobSpec(topic, body, id=id, **options), None, timeout)

    def reschedule(
        self,
        job: Job,
        *,
        delay: float | timedelta = 0,
        at: datetime | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Let a job be due at another time: put it again, and delete the one that was.

        The new job has the same id. Whatever the clocks say, the old one is deleted.
        """
        if not isinstance(job, Job):
            raise InvalidJob("reschedule needs the job that put returned: use replace with an id")
        spec = JobSpec(
            job.topic,
            job.payload,
            delay=delay,
            at=at,
            ttr=None if job.ttr_ms is None else job.ttr_ms / 1000,
            id=job.id,
            max_attempts=job.max_attempts,
            callback=job.callback,
            content_type=job.content_type,
            backoff=None if job.backoff_ms is None else job.backoff_ms / 1000,
            backoff_max=None if job.backoff_max_ms is None else job.backoff_max_ms / 1000,
            reply_to=job.reply_to,
        )
        return self._replace(spec, job, timeout)

    def delete(self, job: str | Job, *, timeout: float | None = None) -> None:
        """Delete a job, by its id or as put returned it, and return when that is durable.

        From then on it is not handed out, but for the few milliseconds in which consumers learn of
        it. By its id, all jobs are deleted that were put under it until now, retries included; what
        is put later lives. As put returned it, that one is, whatever the clocks say. Deleting what
        is finished, unknown or deleted is no error.

        Raises:
            OutcomeUnknown: Not confirmed within the timeout: it may be deleted or not.
        """
        self._refuse_on_io_thread()
        self._deleter.delete(job, timeout)

    def delete_many(
        self,
        jobs: Iterable[str | Job],
        *,
        timeout: float | None = None,
        on_deleted: OnDeleted | None = None,
    ) -> int:
        """Delete many jobs, from a generator too, and return how many.

        `timeout` is for each thousand. `on_deleted` is called with how many are deleted so far.

        Raises:
            DeleteManyFailed: It stopped, and says how many are deleted for sure.
        """
        self._refuse_on_io_thread()
        return self._deleter.delete_many(jobs, timeout, on_deleted)

    def purge(self, topic: str, *, timeout: float | None = None) -> int:
        """Delete every job that was put in a topic until now: delayed, ready and buried.

        Return how many were ready or buried, and are gone at once. What is delayed is dropped when
        it is due.
        """
        self._refuse_on_io_thread()
        self._deleter.purge(intake.check_topic(topic), timeout)
        return empty(self._addresses, self._topology, topic)

    def pause(self, topic: str, *, timeout: float | None = None) -> None:
        """Let no job of a topic be handed out, anywhere, until `resume`. What is held goes on."""
        self._refuse_on_io_thread()
        self._deleter.append(Pause(intake.check_topic(topic)), timeout)

    def resume(self, topic: str, *, timeout: float | None = None) -> None:
        """Let the jobs of a topic be handed out again."""
        self._refuse_on_io_thread()
        self._deleter.append(Resume(intake.check_topic(topic)), timeout)

    def topics(self, *names: str, management_url: str | None = None) -> list[TopicCounts]:
        """Count the jobs of these topics, or of all, and say which topics are paused.

        Without names it asks the broker's management API which topics there are: at
        `management_url`, or where it usually is on the broker's host.
        """
        paused = self.follower().paused()
        chosen = [intake.check_topic(name) for name in names]
        api = Management(
            management.locate(management_url, self._addresses), self._addresses[0].vhost
        )
        return list_topics(self._addresses, self._topology, api, chosen, paused)

    def tombstones(self) -> TombstoneStats:
        """Read the log of deletes to its end, and say what is known by it."""
        return self.follower().stats()

    def follower(self) -> Follower:
        """Return who knows which jobs were deleted, when the log was read to its end.

        Raises:
            CutOff: It cannot be read, or was not within the timeout.
        """
        follower = self._links.front().wait_until_read(self._timeout)
        if not follower.is_current:
            raise follower.failure or CutOff(follower.state)
        return follower

    @overload
    def pop(
        self, topics: str | Sequence[str], *, max: None = None, wait: Wait = 0
    ) -> ReservedJob | None: ...

    @overload
    def pop(
        self, topics: str | Sequence[str], *, max: int, wait: Wait = 0
    ) -> list[ReservedJob]: ...

    def pop(
        self, topics: str | Sequence[str], *, max: int | None = None, wait: Wait = 0
    ) -> ReservedJob | list[ReservedJob] | None:
        """Take the next job of a topic, or of several, and hold it for at most its ttr.

        It waits on the broker for at most `wait` seconds, without a limit when that is None, and
        returns None when no job came. With `max` it returns a list of what is there, at most so
        many, and waits for the first of them only.

        Raises:
            InvalidJob: A topic is none.
            ConnectionFailed: There is no connection to the broker, and was none until the end.
        """
        names = intake.check_topics(topics)
        most = 1 if max is None else intake.check_count(max, "max", MAX_AT_ONCE)
        front = self._links.front()
        front.wait_until_read(self._timeout)
        popper = front.popper
        request = popper.pop(names, most, _deadline(wait))
        try:
            leases = popper.result(request)
        except BaseException:
            popper.abandon(request)
            raise
        jobs = [reserved_job(lease, popper.consumer.holding, self) for lease in leases]
        return jobs if max is not None else jobs[0] if jobs else None

    def response(self, job: Job, *, wait: Wait = 30) -> Response | None:
        """Return the response to a job that this client put with `reply`, once.

        It waits for at most `wait` seconds, without a limit when that is None, and returns None
        when no response came.

        Raises:
            NoResponse: There will be none: the job was buried. It tells why.
            InvalidJob: The job was not put with `reply` by this client.
        """
        replies = self._links.front().replies
        if job.reply_to != replies.queue:
            raise InvalidJob(f"job {job.id} was not put with reply=True by this client")
        return replies.wait(job, _deadline(wait))

    @property
    def reply_queue(self) -> str:
        """The queue of this client's responses, for a JobSpec's `reply_to`; it is made if need be.

        It goes an hour after the client. What comes in it is had with `response`.
        """
        replies = self._links.front().replies
        replies.start(self._timeout)
        return replies.queue

    def close(self, timeout: float | None = None) -> None:
        """Wait for what is on its way, at most `timeout` seconds, and close.

        Jobs that are still held go back to the broker.
        """
        self._links.close(self._timeout if timeout is None else timeout)

    # The way of a put

    def _put_one(self, spec: JobSpec, timeout: float | None, after_ms: int = 0) -> Future[Job]:
        future: Future[Job] = Future()
        future.set_running_or_notify_cancel()

        def resolved(pending: Pending, error: Exception | None) -> None:
            if error is None:
                future.set_result(pending.job)
            else:
                future.set_exception(error)

        self._send(spec, timeout, resolved, after_ms=after_ms)
        return future

    def _send(
        self,
        spec: JobSpec,
        timeout: float | None,
        resolved: Callable[[Pending, Exception | None], None],
        position: int = 0,
        after_ms: int = 0,
    ) -> None:
        publisher = self._links.publisher()
        now = time.monotonic()
        deadline = now + (self._timeout if timeout is None else timeout)
        # On the I/O thread, in a future's callback, nobody else could make room meanwhile.
        if not self._links.window.enter(now if publisher.on_own_thread else deadline):
            raise OutcomeUnknown(
                "put was never sent: too many puts are waiting for the broker", sent=False
            )
        try:
            job = self._make_job(spec, after_ms)
            if spec.id is not None:
                self._deleter.make_way(job)
            asked_ms, now = job.due_ms - job.put_ms, time.monotonic()
            pending = Pending(
                job, envelope.encode(job), asked_ms, now, deadline, resolved, position
            )
            publisher.submit(pending)
        except BaseException:
            self._links.window.leave_unsent()
            raise

    def _replace(self, spec: JobSpec, old: Job | None, timeout: float | None) -> Job:
        self._refuse_on_io_thread()
        if spec.id is None:
            raise InvalidJob("replace needs the id of the job to replace")
        after_ms = self._now_ms()
        self._deleter.let_pass(after_ms)
        if old is not None:
            after_ms = max(after_ms, old.put_ms)
        job = self._put_one(spec, timeout, after_ms).result()
        self._deleter.keep(job, old, timeout)
        return job

    def _make_job(self, spec: JobSpec, after_ms: int = 0) -> Job:
        return intake.make_job(
            spec,
            now_ms=max(self._now_ms(), after_ms + 1),
            random_hex=secrets.token_hex(intake.RANDOM_HEX_DIGITS // 2),
            bounds=self._bounds,
        )

    def _reply_to(self, reply_to: str | None, *, reply: bool) -> str | None:
        if not reply:
            return reply_to
        if reply_to is not None:
            raise InvalidJob("give either reply or reply_to, not both")
        return self.reply_queue

    def new_consumer(self, policy: Callable[[str], RetryPolicy]) -> Consumer:
        """Return a consumer that gives back through this client; for workers."""
        return self._links.new_consumer(policy)

    def new_follower(self, consumer: Consumer) -> Follower:
        """Return who tells a consumer which jobs were deleted; for workers."""
        return self._links.new_follower(consumer)

    def rescue(self) -> None:
        """Send on, in the background, jobs that the broker parked while it started."""
        self._links.rescue()

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _refuse_on_io_thread(self) -> None:
        if self._links.is_on_publishers_thread:
            raise RabbitDelayError(
                "this waits for the broker, and would wait for ever on the client's own I/O "
                "thread: use put_nowait in callbacks"
            )

    @staticmethod
    def _guarded(specs: Iterable[JobSpec], batch: Batch) -> Iterable[JobSpec]:
        """The specs; an error of the iterable itself ends it like an error of a job."""
        try:
            yield from specs
        except Exception as error:  # noqa: BLE001 - it comes from the caller's code
            batch.refuse(batch.take(), error)


def _deadline(wait: Wait) -> float | None:
    return None if wait is None else time.monotonic() + duration.seconds(wait, what="wait")
