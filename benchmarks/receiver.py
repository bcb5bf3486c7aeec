"""A process that records when jobs arrive, at a bare pika consumer or at a Worker."""

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

import pika
from pika.channel import Channel
from pika.connection import Connection
from pika.spec import Basic, BasicProperties

from rabbitdelay import Job, Worker

PREFETCH = 2_000
CONCURRENCY = 10
GRACE_SECONDS = 2.0
"""Seconds to continue after the last expected job, to detect duplicates."""
WARM_UP_PREFIX = "warm-up-"
"""Prefix of ids whose arrivals are not recorded."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A received job and the time of its arrival."""

    id: str
    due_ms: int
    received_ms: float

    @property
    def lateness_ms(self) -> float:
        """Lateness (received - due) in milliseconds; negative if the job is early."""
        return self.received_ms - self.due_ms


class Receiver:
    """Receives until `count` jobs have arrived, or for `most_seconds`."""

    def __init__(self, url: str, queue: str, count: int, most_seconds: float, pipe: Pipe) -> None:
        self._queue, self._count, self._pipe = queue, count, pipe
        self._most_seconds = most_seconds
        self._arrivals: list[tuple[str, int, float]] = []
        self._connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=self._connected,
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    def run(self) -> None:
        """Receive jobs and send the arrivals through the pipe."""
        self._connection.ioloop.call_later(self._most_seconds, self._connection.close)
        self._connection.ioloop.start()
        self._pipe.send(self._arrivals)

    def _connected(self, connection: Connection) -> None:
        connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Channel) -> None:
        def consume(_frame: object) -> None:
            channel.basic_consume(self._queue, self._receive, callback=self._tell_ready)

        channel.basic_qos(prefetch_count=PREFETCH, callback=consume)

    def _tell_ready(self, _frame: object) -> None:
        self._pipe.send(None)

    def _receive(
        self, channel: Channel, method: Basic.Deliver, properties: BasicProperties, _body: bytes
    ) -> None:
        received_ms = time.time_ns() / 1_000_000
        channel.basic_ack(method.delivery_tag or 0)
        job_id = properties.message_id or ""
        if job_id.startswith(WARM_UP_PREFIX):
            return
        due_ms = int((properties.headers or {})["rd-due"])
        self._arrivals.append((job_id, due_ms, received_ms))
        if len(self._arrivals) == self._count:
            self._connection.ioloop.call_later(GRACE_SECONDS, self._connection.close)


class Receiving:
    """The other end of a receiver's pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def arrivals(self) -> list[Arrival]:
        """Wait until the receiver has finished; return the arrivals."""
        return [Arrival(*arrival) for arrival in self._pipe.recv()]


class WorkingReceiver:
    """A receiver that uses a Worker; a job arrives when its handler starts."""

    def __init__(self, url: str, queue: str, count: int, most_seconds: float, pipe: Pipe) -> None:
        self._count, self._pipe = count, pipe
        self._arrivals: list[tuple[str, int, float]] = []
        topic = queue.partition(".ready.")[2]
        self._worker = Worker(url, concurrency=CONCURRENCY, prefetch=PREFETCH, stabilise_seconds=0)
        self._worker.handler(topic)(self._handle)
        self._timer = threading.Timer(most_seconds, self._worker.stop)

    def run(self) -> None:
        """Run the worker and send the arrivals through the pipe."""
        self._timer.start()
        self._pipe.send(None)
        self._worker.run()
        self._timer.cancel()
        self._pipe.send(self._arrivals)

    def _handle(self, job: Job) -> None:
        received_ms = time.time_ns() / 1_000_000
        if job.id.startswith(WARM_UP_PREFIX):
            return
        self._arrivals.append((job.id, job.due_ms, received_ms))
        if len(self._arrivals) == self._count:
            threading.Timer(GRACE_SECONDS, self._worker.stop).start()


@contextmanager
def receiving(
    url: str, queue: str, count: int, most_seconds: float, *, by_worker: bool = False
) -> Iterator[Receiving]:
    """Run a receiving process inside the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    kind = WorkingReceiver if by_worker else Receiver
    process = context.Process(target=_run, args=(kind, url, queue, count, most_seconds, theirs))
    process.start()
    try:
        ours.recv()  # it has started consuming
        yield Receiving(ours)
    finally:
        process.kill()
        process.join()


def _run(  # noqa: PLR0917 - all arguments of a process
    kind: type[Receiver] | type[WorkingReceiver],
    url: str,
    queue: str,
    count: int,
    most_seconds: float,
    pipe: Pipe,
) -> None:
    kind(url, queue, count, most_seconds, pipe).run()
