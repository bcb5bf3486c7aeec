"""A TCP proxy on loopback between a client and a broker, for simulating network faults.

    with Proxy(broker.url) as proxy, front.client(proxy.url) as client:
        proxy.delay_seconds = 0.5  # each way, for bytes that arrive from now on
        proxy.silence()            # packets vanish, and no connection is reset
        proxy.restore()            # bytes sent meanwhile arrive, as with TCP
        proxy.cut()                # every connection is reset; new ones are accepted

A silent proxy neither reads nor forwards. The sender's bytes stay in its socket buffer, as they do
when packets are dropped and retransmitted. A connection opened meanwhile gets no answer.
All methods may be called from any thread.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65_536
START_SECONDS = 30.0


class Proxy:
    """Forwards connections to one broker; the test controls which bytes arrive, and when."""

    def __init__(self, url: str, *, delay_seconds: float = 0.0) -> None:
        self.delay_seconds = delay_seconds
        """Added to each direction; a change affects only the bytes that arrive after it."""
        self._target = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: list[_Connection] = []
        self._is_silent = {"to_broker": False, "to_client": False}

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    @property
    def url(self) -> str:
        """The AMQP URL of the broker, by way of this proxy."""
        assert self._server is not None
        _, port = self._server.sockets[0].getsockname()
        credentials, at, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def silence(
        self, *, to_broker: bool = True, to_client: bool = True, only: int | None = None
    ) -> None:
        """Forward nothing in these directions until `restore`, and reset no connection.

        Args:
            to_broker: Whether bytes from the client are held back.
            to_client: Whether bytes from the broker are held back.
            only: Index of the connection to silence, counted from 0 among the open connections in
                the order in which they were opened. All, present and future, by default.
        """
        self._do(lambda: self._set_silent(only, to_broker=to_broker, to_client=to_client))

    def restore(self) -> None:
        """Forward again on every connection, beginning with the bytes sent meanwhile."""
        self._do(lambda: self._set_silent(None, to_broker=False, to_client=False))

    def cut(self) -> None:
        """Reset every connection."""
        self._do(self._abort_all)

    # On the event loop

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._abort_all()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _abort_all(self) -> None:
        for connection in self._connections:
            connection.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, self._is_silent)
        self._connections.append(connection)
        try:
            target = self._target
            broker = await asyncio.open_connection(target.hostname, target.port or 5672)
            await connection.forward((reader, writer), broker)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._connections.remove(connection)

    def _set_silent(self, only: int | None, **silent: bool) -> None:
        if only is not None:
            self._connections[only].set_silent(silent)
            return
        self._is_silent = silent
        for connection in self._connections:
            connection.set_silent(silent)

    # From any thread

    def _do(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            action()

        self._run(act())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        done.result(START_SECONDS)


class _Connection:
    """The two directions of one connection."""

    def __init__(self, proxy: Proxy, silent: dict[str, bool]) -> None:
        self._directions = {name: _Direction(proxy) for name in ("to_broker", "to_client")}
        self.set_silent(silent)

    async def forward(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Forward both ways until both sides have closed."""
        (from_client, to_client), (from_broker, to_broker) = client, broker
        await asyncio.gather(
            self._directions["to_broker"].forward(from_client, to_broker),
            self._directions["to_client"].forward(from_broker, to_client),
        )

    def set_silent(self, silent: dict[str, bool]) -> None:
        """Open or block each direction."""
        for name, direction in self._directions.items():
            direction.is_open.clear() if silent[name] else direction.is_open.set()

    def abort(self) -> None:
        """Reset both sides."""
        for direction in self._directions.values():
            direction.abort()


class _Direction:
    """The bytes of one direction, each forwarded a fixed delay after it was read."""

    def __init__(self, proxy: Proxy) -> None:
        self.is_open = asyncio.Event()
        self._proxy = proxy
        self._chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward until the sender closes the connection or either side is reset."""
        self._writer = writer
        reading = asyncio.create_task(self._read(reader))
        try:
            with suppress(OSError):
                await self._write(writer)
        finally:
            reading.cancel()
            writer.close()

    def abort(self) -> None:
        """Reset the receiving side: closing a socket with a linger time of 0 sends RST."""
        if self._writer is not None:
            sock = self._writer.get_extra_info("socket")
            with suppress(OSError):  # closed already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        data = b"?"
        while data:
            await self.is_open.wait()
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            due = asyncio.get_running_loop().time() + self._proxy.delay_seconds
            self._chunks.put_nowait((due, data))

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        data = b"?"
        while data:
            due, data = await self._chunks.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await self.is_open.wait()
            writer.write(data)
            await writer.drain()
