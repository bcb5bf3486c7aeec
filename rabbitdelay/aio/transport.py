"""The transport over aio-pika: the event loop, and a connection on it."""

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
from rabbitdelay.aio import driver_errors
from rabbitdelay.aio.aiormq_internals import FactoryConnection, closing, underlying
from rabbitdelay.aio.connection import LentConnection, LoopConnection, OwnConnection
from rabbitdelay.aio.frame_reader import FrameTransport
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Connection, Then, TransportOwner
from rabbitdelay.errors import ConnectionFailed

# Without this, a program that set up no logging gets their warnings on its terminal whenever a
# connection is refused. Handlers that the program did set up still get them.
for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


END_SECONDS = 2.0
"""How long a connection may take to close when the event loop ends."""


class LoopTransport(ABC):
    """The running event loop."""

    def __init__(self) -> None:
        self.ended: Future[None] = Future()
        self.ended.set_running_or_notify_cancel()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._owner: TransportOwner | None = None
        self._connection: LoopConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    # From any thread

    def start(self, owner: TransportOwner, first: Then) -> None:
        """Begin."""
        self._owner = owner
        self.call(first)

    def call(self, function: Then) -> bool:
        """Run a function soon; False when it has ended, or the loop is closed."""
        if self.ended.done() or self._loop.is_closed():
            return False
        if threading.get_ident() == self._thread:
            self._loop.call_soon(function)
        else:
            self._loop.call_soon_threadsafe(function)
        return True

    def may_wait(self) -> bool:
        """Whether the caller may wait: to await stops nobody."""
        return True

    # On the loop

    def call_later(self, seconds: float, function: Then) -> object:
        """Run a function after a while."""
        return self._loop.call_later(seconds, function)

    def cancel(self, timer: object) -> None:
        """Do not run it after all."""
        assert isinstance(timer, asyncio.TimerHandle)
        timer.cancel()

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        """Connect, and tell how that ends."""

        def tell_if_never_begun(opening: asyncio.Task[None]) -> None:
            if opening.cancelled():  # before its first step: else it tells by itself
                self._opening = None
                failed(driver_errors.connection_error(None, address))

        connecting = self._connect(address, opened, failed)
        self._opening = self._loop.create_task(connecting, name="rabbitdelay-connect")
        self._opening.add_done_callback(tell_if_never_begun)

    def stop(self) -> None:
        """Close the connection, also one that is being made, and end."""
        if self._opening is not None:
            self._opening.cancel()
        elif self._connection is not None:
            self._connection.close()
        else:
            self._end()

    def cut(self) -> None:
        """End a connection whose end the broker does not confirm."""
        if self._connection is not None:
            self._connection.cut()

    def abandon(self) -> None:  # noqa: B027 - not abstract: there is nothing to do
        """Nothing to do: an event loop does not go on in a forked child."""

    async def _connect(
        self,
        address: Address,
        opened: Callable[[Connection], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        try:
            async with asyncio.timeout(address.connection_timeout_seconds):
                connection = await self._open(address)
        except BaseException as error:  # noqa: BLE001 - reported to whoever waits for it
            self._opening = None
            failed(driver_errors.connection_error(error, address))
            return
        self._opening = None
        self._connection = connection

        def lost(closed: asyncio.Future[object]) -> None:
            if self._connection is connection:
                self._connection = None
                error = None if closed.cancelled() else closed.exception()
                failed(driver_errors.connection_error(error, address))

        closing(connection.aiormq_connection).add_done_callback(lost)
        opened(connection)

    @abstractmethod
    async def _open(self, address: Address) -> LoopConnection:
        """Return a connection that is open."""

    def _end(self) -> None:
        if not self.ended.done():
            assert self._owner is not None
            self._owner.connection_closed()
            self.ended.set_result(None)

    def _in_background(self, closing: asyncio.Task[None]) -> None:
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class OwnTransport(LoopTransport):
    """Connections of our own."""

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
        """Wait for the end of a connection. When that of the event loop comes first, close it.

        asyncio.run waits for the tasks that it cancels, and not for those that aiormq begins then.
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
    """The application's own connection, which comes back by itself if it is a robust one."""

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

        return LentConnection(aio_connection, underlying(aio_connection), close)

    async def _until_connected_or_closed(self) -> None:
        """Wait for either: the application may close a connection that is being restored."""
        closed = asyncio.ensure_future(self._lent_connection.closed())
        connected = asyncio.ensure_future(self._lent_connection.connected.wait())
        try:
            await asyncio.wait((closed, connected), return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            connected.cancel()


def _url(address: Address) -> URL:
    """What aio-pika is told; the socket, and TLS, are opened by our own transport."""
    return URL.build(
        scheme="amqp",
        user=address.user,
        password=address.password,
        host=address.host,
        port=address.port,
        path="/" if address.vhost == "/" else f"/{address.vhost}",
        query={"heartbeat": str(address.heartbeat_seconds), "name": "rabbitdelay"},
    )
