"""The transport on aio-pika: the event loop with one connection."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPError
from yarl import URL

from rabbitdelay.address import Address
from rabbitdelay.aio.driver.aiormq_internals import (
    FactoryConnection,
    closing,
    frame_receiver,
    underlying,
)
from rabbitdelay.aio.driver.connection import LentConnection, LoopConnection, OwnConnection
from rabbitdelay.aio.driver.errors import connection_error
from rabbitdelay.aio.driver.frame_reader import FrameTransport
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Connection, Then, TransportOwner
from rabbitdelay.errors import ConnectionFailed
from rabbitdelay.system_time import monotonic_seconds

# Without this, a program that has not configured logging gets their warnings on its terminal
# whenever a connection is refused. Handlers that the program has configured still get them.
for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


END_SECONDS = 2.0
"""Seconds that a connection may take to close when the event loop ends."""


class LoopTransport(ABC):
    """The event loop that is running when the transport is created."""

    def __init__(self) -> None:
        self.ended: Future[None] = Future()
        self.ended.set_running_or_notify_cancel()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._owner: TransportOwner | None = None
        self._connection: LoopConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    # Called from any thread

    def start(self, owner: TransportOwner, first: Then) -> None:
        """Start by scheduling `first` on the event loop."""
        self._owner = owner
        self.call(first)

    def call(self, function: Then) -> bool:
        """Schedule a function; False if the transport has ended or the loop is closed."""
        if self.ended.done() or self._loop.is_closed():
            return False
        if threading.get_ident() == self._thread:
            self._loop.call_soon(function)
        else:
            self._loop.call_soon_threadsafe(function)
        return True

    def may_wait(self) -> bool:
        """Whether the caller may wait, which is always so because awaiting blocks no thread."""
        return True

    # Called on the event loop

    monotonic = staticmethod(monotonic_seconds)

    def call_later(self, seconds: float, function: Then) -> object:
        """Schedule a function after a delay; return a handle for `cancel`."""
        return self._loop.call_later(seconds, function)

    def call_sometime(self, seconds: float, function: Then) -> object:
        """Schedule a function that may be called late, which it is not here."""
        return self.call_later(seconds, function)

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later`."""
        assert isinstance(timer, asyncio.TimerHandle)
        timer.cancel()

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        """Connect; call `failed` once, when connecting fails or the connection is lost."""

        def tell_if_never_begun(opening: asyncio.Task[None]) -> None:
            if opening.cancelled():  # before its first step; later, `_connect` reports it
                self._opening = None
                failed(connection_error(None, address))

        connecting = self._connect(address, opened, failed)
        self._opening = self._loop.create_task(connecting, name="rabbitdelay-connect")
        self._opening.add_done_callback(tell_if_never_begun)

    def stop(self) -> None:
        """Close the connection, even while it is opening, and end."""
        if self._opening is not None:
            self._opening.cancel()
        elif self._connection is not None:
            self._connection.close()
        else:
            self._end()

    def cut(self) -> None:
        """Drop a connection whose closing handshake the broker does not complete."""
        if self._connection is not None:
            self._connection.cut()

    def abandon(self) -> None:  # noqa: B027 - not abstract: there is nothing to do
        """Do nothing, because an event loop does not run on in a forked child."""

    async def _connect(
        self,
        address: Address,
        opened: Callable[[Connection], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        try:
            async with asyncio.timeout(address.connection_timeout_seconds):
                connection = await self._open(address)
        except BaseException as error:  # noqa: BLE001 - passed to `failed`
            self._opening = None
            failed(connection_error(error, address))
            return
        self._opening = None
        self._connection = connection

        def lost(closed: asyncio.Future[object]) -> None:
            if self._connection is connection:
                self._connection = None
                error = None if closed.cancelled() else closed.exception()
                failed(connection_error(error, address))

        closing(connection.aiormq_connection).add_done_callback(lost)
        opened(connection)

    @abstractmethod
    async def _open(self, address: Address) -> LoopConnection:
        """Return an open connection."""

    def _end(self) -> None:
        if not self.ended.done():
            assert self._owner is not None
            self._owner.connection_closed()
            self.ended.set_result(None)

    def _in_background(self, closing: asyncio.Task[None]) -> None:
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class OwnTransport(LoopTransport):
    """Opens the client's own connections."""

    async def _open(self, address: Address) -> LoopConnection:
        transport = FrameTransport(address)
        aio_connection = FactoryConnection(_url(address), transport)
        try:
            await aio_connection.connect()
        except AMQPError as error:
            raise transport.reader.reason(error) from None
        self._in_background(self._loop.create_task(self._outlive(aio_connection)))

        def close() -> None:
            self._in_background(self._loop.create_task(aio_connection.close()))

        return OwnConnection(aio_connection, underlying(aio_connection), transport, close)

    async def _outlive(self, aio_connection: FactoryConnection) -> None:
        """Wait for the end of a connection, and close it if the event loop ends first.

        asyncio.run waits for the tasks that it cancels, but not for those that aiormq starts then.
        """
        closed = closing(underlying(aio_connection))
        try:
            await asyncio.wait([closed])
        except asyncio.CancelledError:
            self._connection = None
            self._end()
            with suppress(Exception):
                async with asyncio.timeout(END_SECONDS):
                    await aio_connection.close()
                    await asyncio.wait([closed])
            raise


class LentTransport(LoopTransport):
    """Uses a connection lent by the application. A robust one reconnects by itself."""

    def __init__(self, aio_connection: AbstractConnection) -> None:
        super().__init__()
        self._lent_connection = aio_connection

    async def _open(self, address: Address) -> LoopConnection:
        aio_connection = self._lent_connection
        await self._until_connected_or_closed()
        if aio_connection.is_closed:
            raise ConnectionFailed(f"{address}: the connection that was lent is closed")

        def close() -> None:
            self._connection = None
            self._loop.call_soon(self._end)

        aiormq_connection = underlying(aio_connection)
        receiver = frame_receiver(aiormq_connection)
        if receiver is None and aiormq_connection.is_opened:
            raise ConnectionFailed(
                f"{address}: the installed version of aiormq does not let a client share a "
                "connection: install aiormq 7.2, or pass a URL instead of the connection"
            )
        if receiver is None:
            raise ConnectionFailed(f"{address}: the connection that was lent was lost")
        return LentConnection(aio_connection, aiormq_connection, receiver, close)

    async def _until_connected_or_closed(self) -> None:
        """Wait for either, because the application may close a connection while it reconnects."""
        closed = asyncio.ensure_future(self._lent_connection.closed())
        connected = asyncio.ensure_future(self._lent_connection.connected.wait())
        try:
            await asyncio.wait((closed, connected), return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            connected.cancel()


def _url(address: Address) -> URL:
    """Return the URL for aio-pika. FrameTransport opens the socket, with TLS if needed."""
    return URL.build(
        scheme="amqp",
        user=address.user,
        password=address.password,
        host=address.host,
        port=address.port,
        path="/" if address.vhost == "/" else f"/{address.vhost}",
        query={"heartbeat": str(address.heartbeat_seconds), "name": "rabbitdelay"},
    )
