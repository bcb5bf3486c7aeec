"""A contract with aio-pika and aiormq: what aio/driver/aiormq_internals.py uses is as it says.

aiormq talks to a server here that is written out frame by frame, so that no broker is needed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pamqp.frame
from aiormq.connection import TCPTransportFactory
from pamqp import commands as spec
from pamqp.base import Frame
from yarl import URL

from rabbitdelay.aio.driver import aiormq_internals
from rabbitdelay.aio.driver.aiormq_internals import (
    FactoryConnection,
    FrameReceiver,
    TransportFactory,
)
from rabbitdelay.aio.driver.frame_reader import SharedReader
from tests.support.patience import patience

VERSION = "4.3.6"


class Factory(TransportFactory):
    """Opens a socket, and counts how often."""

    def __init__(self) -> None:
        self.opened = 0

    async def create(
        self,
        url: URL,
        **kwargs: Any,  # noqa: ANN401 - aiormq's
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket."""
        self.opened += 1
        return await TCPTransportFactory().create(url, **kwargs)


class Server:
    """A broker that sends the frames of a handshake."""

    def __init__(self) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self.read = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Complete the handshake, and read from then on."""
        self.writer = writer
        await reader.readexactly(8)
        properties: dict[str, Any] = {"version": VERSION, "capabilities": {}}
        self.say(0, spec.Connection.Start(0, 9, properties, "PLAIN AMQPLAIN", "en_US"))
        await reader.read(10_000)
        self.say(0, spec.Connection.Tune(channel_max=100, frame_max=8_192, heartbeat=60))
        self.say(0, spec.Connection.OpenOk())
        while data := await reader.read(10_000):
            self.read += data
            if b"\x00\x0a\x00\x32" in data:  # Connection.Close
                self.say(0, spec.Connection.CloseOk())
        writer.close()

    def say(self, channel: int, frame: Frame) -> None:
        """Send a frame."""
        assert self.writer is not None
        self.writer.write(pamqp.frame.marshal(frame, channel))


class Listener:
    """A stand-in for a channel, which records its frames."""

    def __init__(self) -> None:
        self.frames = self
        self.heard: list[object] = []

    async def put(self, item: tuple[int, object]) -> None:
        """Record a frame."""
        self.heard.append(item[1])


@asynccontextmanager
async def connected(factory: Factory) -> AsyncIterator[tuple[FactoryConnection, Server]]:
    said = Server()
    server = await asyncio.start_server(said.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = FactoryConnection(URL(f"amqp://guest:guest@127.0.0.1:{port}/"), factory)
    await connection.connect()
    try:
        yield connection, said
    finally:
        await connection.close()
        server.close()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(patience(10)):
        while not is_true():  # noqa: ASYNC110 - for a moment
            await asyncio.sleep(0.001)


def run(test: Callable[[FactoryConnection, Server, Factory], Awaitable[None]]) -> None:
    async def with_connection() -> None:
        factory = Factory()
        async with connected(factory) as (connection, server):
            await test(connection, server, factory)

    asyncio.run(with_connection())


def test_the_socket_is_opened_by_our_factory() -> None:
    async def check(_connection: FactoryConnection, _server: Server, factory: Factory) -> None:
        assert factory.opened == 1

    run(check)


def test_negotiated_settings_can_be_read() -> None:
    async def check(connection: FactoryConnection, _server: Server, _factory: Factory) -> None:
        below = aiormq_internals.underlying(connection)
        assert aiormq_internals.frame_max(below) == 8_192
        assert aiormq_internals.broker_version(below) == VERSION

    run(check)


def test_a_replaced_channel_receives_the_frames() -> None:
    async def check(connection: FactoryConnection, server: Server, _factory: Factory) -> None:
        listener = Listener()
        aiormq_internals.channels(aiormq_internals.underlying(connection))[7] = listener
        server.say(7, spec.Basic.Ack(3))
        await until(lambda: bool(listener.heard))
        assert isinstance(listener.heard[0], spec.Basic.Ack)
        del aiormq_internals.channels(aiormq_internals.underlying(connection))[7]

    run(check)


def test_bytes_are_written_in_turn() -> None:
    async def check(connection: FactoryConnection, server: Server, _factory: Factory) -> None:
        data = pamqp.frame.marshal(spec.Channel.Open(), 9)
        await aiormq_internals.write_bytes(aiormq_internals.underlying(connection), data)
        await until(lambda: data in server.read)

    run(check)


def test_it_is_known_at_once_whether_the_broker_blocks() -> None:
    async def check(connection: FactoryConnection, server: Server, _factory: Factory) -> None:
        below = aiormq_internals.underlying(connection)
        assert aiormq_internals.is_done_at_once(below)
        server.say(0, spec.Connection.Blocked("memory"))
        await until(lambda: not aiormq_internals.is_done_at_once(below))
        server.say(0, spec.Connection.Unblocked())
        await until(lambda: aiormq_internals.is_done_at_once(below))

    run(check)


def test_the_end_can_be_waited_for() -> None:
    async def check(connection: FactoryConnection, _server: Server, _factory: Factory) -> None:
        ended = aiormq_internals.closing(aiormq_internals.underlying(connection))
        assert not ended.done()
        await connection.close()
        assert ended.done()

    run(check)


def test_the_reader_can_be_replaced_between_two_frames() -> None:
    """The deliveries of one channel are taken, and aiormq reads everything else."""

    async def check(connection: FactoryConnection, server: Server, _factory: Factory) -> None:
        below = aiormq_internals.underlying(connection)
        found = aiormq_internals.frame_receiver(below)
        assert found is not None
        receiver: FrameReceiver = found
        before = receiver.reader
        taken: list[bytes] = []

        def take(frame: bytes) -> bytes:
            taken.append(frame)
            return b""

        class Replacing(Listener):
            async def put(self, item: tuple[int, object]) -> None:
                await super().put(item)
                if isinstance(item[1], spec.Channel.OpenOk):
                    SharedReader.of(receiver).add(8, take)
                if isinstance(item[1], spec.Channel.CloseOk):
                    SharedReader.of(receiver).remove(8)

        first, other = Replacing(), Listener()
        numbers = aiormq_internals.channels(below)
        numbers[7], numbers[8] = first, other
        server.say(7, spec.Channel.OpenOk())
        server.say(8, spec.Basic.Deliver("c", 1, exchange="", routing_key=""))
        server.say(7, spec.Basic.Ack(3))
        await until(lambda: len(first.heard) == 2)
        assert isinstance(first.heard[1], spec.Basic.Ack)
        assert other.heard == []
        assert [frame[:3] for frame in taken] == [b"\x01\x00\x08"]
        assert SharedReader.of(receiver) is receiver.reader
        server.say(7, spec.Channel.CloseOk())
        server.say(8, spec.Channel.CloseOk())
        await until(lambda: bool(other.heard))
        assert receiver.reader is before
        assert connection.connected.is_set()

    run(check)


def test_a_reader_that_cannot_be_found_is_none() -> None:
    class Elsewhere:
        _reader_task = None

    assert aiormq_internals.frame_receiver(Elsewhere()) is None  # type: ignore[arg-type]
