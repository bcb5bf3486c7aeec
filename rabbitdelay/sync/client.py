"""The client: what people call."""

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, overload

from rabbitdelay import duration, locate
from rabbitdelay.core import envelope, intake
from rabbitdelay.core.outbox import Pending
from rabbitdelay.core.responses import Response
from rabbitdelay.core.retry import RetryPolicy
from rabbitdelay.core.routes import Routes
from rabbitdelay.core.setup import SETTLE_SECONDS
from rabbitdelay.core.topology import QueueType, Topology
from rabbitdelay.errors import ClientClosed, InvalidJob, OutcomeUnknown, RabbitDelayError
from rabbitdelay.models import Job, JobSpec
from rabbitdelay.sync.batch import Batch, OnConfirmed
from rabbitdelay.sync.consumer import Consumer
from rabbitdelay.sync.front import Front
from rabbitdelay.sync.popping import MAX_AT_ONCE
from rabbitdelay.sync.publisher import Publisher
from rabbitdelay.sync.rescue import rescue_in_background
from rabbitdelay.sync.reserved import ReservedJob, reserved_job
from rabbitdelay.sync.window import Window

WINDOW_BYTES = 64 * 1024 * 1024
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
    ) -> None:
        self._addresses = locate.locate(url)
        self._topology = Topology(namespace, queue_type)
        self._declare = declare
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._window_puts = window
        self._bounds = intake.Bounds(max_body_bytes)
        self._settle_seconds = settle_seconds
        self._closed = False
        self._retry = retry or RetryPolicy()
        self._publisher: Publisher | None = None
        self._front: Front | None = None
        self._begin_anew()

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
        self._running_publisher()

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
        popper = self._running_front().popper
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
        replies = self._running_front().replies
        if job.reply_to != replies.queue:
            raise InvalidJob(f"job {job.id} was not put with reply=True by this client")
        return replies.wait(job, _deadline(wait))

    @property
    def reply_queue(self) -> str:
        """The queue of this client's responses, for a JobSpec's `reply_to`; it is made if need be.

        It goes an hour after the client. What comes in it is had with `response`.
        """
        replies = self._running_front().replies
        replies.start(self._timeout)
        return replies.queue

    def close(self, timeout: float | None = None) -> None:
        """Wait for what is on its way, at most `timeout` seconds, and close.

        Jobs that are still held go back to the broker.
        """
        self._closed = True
        flush_seconds = self._timeout if timeout is None else timeout
        front, self._front = self._front, None
        publisher, self._publisher = self._publisher, None
        if self._process_id != os.getpid():
            return
        if front is not None:
            front.consumer.close(flush_seconds)
        if publisher is not None:
            publisher.close(flush_seconds)

    # The way of a put

    def _put_one(self, spec: JobSpec, timeout: float | None) -> Future[Job]:
        future: Future[Job] = Future()
        future.set_running_or_notify_cancel()

        def resolved(pending: Pending, error: Exception | None) -> None:
            if error is None:
                future.set_result(pending.job)
            else:
                future.set_exception(error)

        self._send(spec, timeout, resolved)
        return future

    def _send(
        self,
        spec: JobSpec,
        timeout: float | None,
        resolved: Callable[[Pending, Exception | None], None],
        position: int = 0,
    ) -> None:
        publisher = self._running_publisher()
        now = time.monotonic()
        deadline = now + (self._timeout if timeout is None else timeout)
        # On the I/O thread, in a future's callback, nobody else could make room meanwhile.
        if not self._window.enter(now if publisher.on_own_thread else deadline):
            raise OutcomeUnknown(
                "put was never sent: too many puts are waiting for the broker", sent=False
            )
        try:
            job = self._make_job(spec)
            asked_ms, now = job.due_ms - job.put_ms, time.monotonic()
            pending = Pending(
                job, envelope.encode(job), asked_ms, now, deadline, resolved, position
            )
            publisher.submit(pending)
        except BaseException:
            self._window.leave_unsent()
            raise

    def _make_job(self, spec: JobSpec) -> Job:
        return intake.make_job(
            spec,
            now_ms=time.time_ns() // 1_000_000,
            random_hex=secrets.token_hex(intake.RANDOM_HEX_DIGITS // 2),
            bounds=self._bounds,
        )

    # The publisher behind it

    def _running_publisher(self) -> Publisher:
        if self._process_id != os.getpid():
            self._begin_anew()
        publisher = self._publisher
        return publisher if publisher is not None else self._start_publisher()

    def _start_publisher(self) -> Publisher:
        with self._lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            if self._publisher is None:
                publisher = Publisher(
                    self._addresses, self._new_routes(), self._window, self._rescuer()
                )
                try:
                    publisher.start(self._connect_timeout)
                except BaseException:
                    publisher.close(0)
                    raise
                weakref.finalize(self, publisher.close_soon).atexit = False
                self._publisher = publisher
            return self._publisher

    def _running_front(self) -> Front:
        if self._process_id != os.getpid():
            self._begin_anew()
        front = self._front
        if front is not None and front.consumer.has_ended and not self._closed:
            front = self._front = None  # its thread has died
        if front is not None and front.consumer.on_own_thread:
            raise RabbitDelayError(
                "this waits for the broker, and must not be called in a callback"
            )
        return front if front is not None else self._start_front()

    def _start_front(self) -> Front:
        publisher = self._running_publisher()
        with self._lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            if self._front is None:
                retry = self._retry
                front = Front(self._new_consumer(publisher, lambda _: retry))
                try:
                    front.start(self._connect_timeout)
                except BaseException:
                    front.consumer.close(0)
                    raise
                weakref.finalize(self, front.consumer.close_soon).atexit = False
                self._front = front
            return self._front

    def _reply_to(self, reply_to: str | None, *, reply: bool) -> str | None:
        if not reply:
            return reply_to
        if reply_to is not None:
            raise InvalidJob("give either reply or reply_to, not both")
        return self.reply_queue

    def new_consumer(self, policy: Callable[[str], RetryPolicy]) -> Consumer:
        """Return a consumer that gives back through this client; for workers."""
        return self._new_consumer(self._running_publisher(), policy)

    def _new_consumer(self, publisher: Publisher, policy: Callable[[str], RetryPolicy]) -> Consumer:
        routes = self._new_routes()
        return Consumer(self._addresses, self._topology, routes, publisher, policy)

    def _new_routes(self) -> Routes:
        return Routes(
            self._topology, may_declare=self._declare, settle_seconds=self._settle_seconds
        )

    def rescue(self) -> None:
        """Send on, in the background, jobs that the broker parked while it started."""
        self._rescuer()()

    def _rescuer(self) -> Callable[[], None]:
        """What is done after a reconnect; it must not hold the client itself."""
        if not self._declare:
            return lambda: None
        return partial(rescue_in_background, self._addresses, self._topology)

    def _begin_anew(self) -> None:
        """Start with nothing shared: at first, and in a forked child, where threads are gone."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._window = Window(self._window_puts, WINDOW_BYTES)
        self._publisher = None
        self._front = None

    def _refuse_on_io_thread(self) -> None:
        if self._publisher is not None and self._publisher.on_own_thread:
            raise RabbitDelayError(
                "put waits for the broker and would wait for ever on the client's own I/O thread: "
                "use put_nowait in callbacks"
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
