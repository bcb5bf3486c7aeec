"""Running workers, in a thread or in a process that the test may kill, and faults for them."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pika

from rabbitdelay import Client, ReservedJob, RetryPolicy, Worker
from rabbitdelay.aio.driver.frame_reader import FrameTransport
from rabbitdelay.core.amqp import decode, encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.deletes.reader import LogReader
from rabbitdelay.engine.pop.popper import Popper
from rabbitdelay.engine.transport import Channel, nothing
from rabbitdelay.errors import ConnectionFailed
from rabbitdelay.executors.blocking import drive
from tests.support.patience import patience, wait_until

ROOT = Path(__file__).parents[3]


@contextmanager
def working(worker: Worker, **options: Any) -> Iterator[Worker]:  # noqa: ANN401 - passed on
    """Run a worker in a thread inside the block; raise at the end what its `run` raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(**options)
        except BaseException as error:  # noqa: BLE001 - raised by the block
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: worker._dispatcher is not None or errors)
        yield worker
    finally:
        worker.stop()
        thread.join(patience(40))
        assert not thread.is_alive(), "the worker did not stop"
    if errors:
        raise errors[0]


class Process:
    """A Python script in a process of its own. Its output is collected line by line."""

    def __init__(self, script: str, *arguments: str, options: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *options, "-c", script, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in (
                (self._process.stdout, self.lines),
                (self._process.stderr, self.errors),
            )
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.wait()

    def wait_for(self, line: str, *, count: int = 1, seconds: float = 20.0) -> None:
        """Wait until the process has printed `count` lines that begin with `line`."""
        wait_until(
            lambda: self.count(line) >= count or self._process.poll() is not None,
            seconds=seconds,
            what=f"{line!r}: {self.lines[-5:]} {self.errors[-5:]}",
        )
        assert self.count(line) >= count, (line, self.lines[-5:], self.errors)

    def wait_for_error(self, text: str) -> None:
        """Wait until a line with this text appears on its standard error."""
        wait_until(
            lambda: any(text in line for line in list(self.errors)),
            what=f"{text!r}: {self.lines[-5:]} {self.errors[-5:]}",
        )

    def count(self, line: str) -> int:
        """Return the number of lines that begin with `line`."""
        return sum(one.startswith(line) for one in list(self.lines))

    def second_words(self, first: str) -> Counter[str]:
        """Return the second words of the lines with this first word, with their counts."""
        pairs = [one.split() for one in list(self.lines)]
        return Counter(words[1] for words in pairs if words[0] == first)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 20.0) -> int:
        """Wait `patience(seconds)` for the process to end; return its exit code."""
        code = self._process.wait(patience(seconds))
        for reader in self._readers:
            reader.join(patience(10))
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    @staticmethod
    def _read(pipe: Any, into: list[str]) -> None:  # noqa: ANN401 - a text stream
        into.extend(iter_lines(pipe))


def iter_lines(pipe: Any) -> Iterator[str]:  # noqa: ANN401 - a text stream
    """Yield the lines of a pipe as they arrive."""
    for line in pipe:
        yield line.rstrip("\n")


def handed_out_at(job: ReservedJob, ttr_seconds: float) -> float:
    """Return the monotonic time at which a job's lease began: its handler may start later."""
    while True:
        before = time.monotonic()
        left_seconds = job.time_left
        if time.monotonic() - before < 0.02:  # otherwise this thread had to wait in between
            return before + left_seconds - ttr_seconds


def cut(connector: Connector) -> bool:
    """Shut down the socket of a connection; return whether it had a connected one."""
    transport = getattr(connector.connection, "_transport", None)
    sock = getattr(transport, "_sock", None)  # pika's
    if isinstance(transport, FrameTransport) and transport.writer is not None:
        sock = transport.writer.get_extra_info("socket")
    if sock is None:
        return False
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # not connected yet, or already cut
    return True


def publisher_connector(client: Client) -> Connector:
    """Return the connection on which a client puts."""
    assert client._engine.connections._publisher is not None
    return client._engine.connections._publisher._connector


def cut_pops(client: Client) -> None:
    """Cut the connection with the leases of the jobs that a client popped."""
    wait_until(partial(cut, popper_of(client).consumer._connector))


def popper_of(client: Client) -> Popper:
    """Return the popper of a client that has popped before."""
    assert client._engine.connections._consuming_side is not None
    return client._engine.connections._consuming_side.popper


def cut_worker(worker: Worker) -> None:
    """Cut the connection with the leases of a worker."""
    dispatcher = worker._dispatcher
    assert dispatcher is not None
    wait_until(partial(cut, dispatcher.consumer._connector))


def log_reader_of(worker: Worker) -> LogReader:
    """Return the reader of the log of deletes of a running worker."""
    assert worker._dispatcher is not None
    return worker._dispatcher._log_reader


def publish(url: str, queue: str, *messages: tuple[bytes, pika.BasicProperties | None]) -> None:
    """Publish straight into a queue, as any AMQP client can."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body, properties in messages:
            channel.basic_publish("", queue, body, properties, mandatory=True)


def publish_frames(url: str, key: str, messages: Iterable[Message], *, exchange: str = "") -> None:
    """Publish to a queue or an exchange headers and text that pika would not encode."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for message in messages:
            data = encode.publish(channel.channel_number, exchange, key, message, 131_072)
            connection._impl._adapter_emit_data(data)
        # Answered after the messages.
        if exchange:
            channel.exchange_declare(exchange, passive=True)
        else:
            channel.queue_declare(key, passive=True)


class Looker:
    """Reads all messages of a queue, including headers that pika cannot decode."""

    def __init__(self, client: Client, queue: str) -> None:
        self._queue = queue
        self.messages: list[Message] = []
        self.originals: list[Message] = []
        """The same messages, with each header as its bytes."""
        self._consumer = drive(
            client._engine.connections.new_consumer(lambda _: Policies(RetryPolicy()))
        )

    def __enter__(self) -> Self:
        self._consumer.start(self)
        drive(self._consumer.connected(patience(10)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        drive(self._consumer.close(1))

    def wait_for(self, count: int, *, seconds: float = 15.0) -> list[Message]:
        """Wait until `count` messages have arrived, and return all of them."""
        what = f"{self._queue}: {count}"
        wait_until(lambda: len(self.messages) >= count, seconds=seconds, what=what)
        return list(self.messages)

    def connected(self) -> None:
        """Consume the queue without acknowledging, so that the messages stay in it."""
        self._consumer.open_channel(self._opened, self._take)

    def _opened(self, channel: Channel) -> None:
        channel.consume(self._queue, {}, nothing)

    def _take(self, found: Delivery | GetEmpty) -> None:
        assert isinstance(found, Delivery)
        self.originals.append(decode.original(found))
        self.messages.append(found.message)

    def disconnected(self, error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """Do nothing: the channel is opened again after the reconnect."""

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """Do nothing: no further messages are expected."""

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing: no job is leased."""

    def read(self) -> None:
        """Do nothing: `_take` has recorded the messages."""

    def closed(self) -> None:
        """Do nothing: no further messages are expected."""
