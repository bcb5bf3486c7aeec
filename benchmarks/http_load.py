"""A cheap HTTP client for load: prepared requests on keep-alive connections, over raw sockets.

It understands the responses of one server: a Content-Length, or status 204.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

NO_CONTENT = 204
_END_OF_HEADERS = b"\r\n\r\n"


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._response: asyncio.Future[tuple[int, bytes]] | None = None

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the body of its response."""
        assert self._transport is not None
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._response

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that has no response."""
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Resolve the request once its response is complete."""
        self._received += data
        head, separator, rest = self._received.partition(_END_OF_HEADERS)
        if not separator:
            return
        length = _content_length(head)
        if len(rest) >= length and self._response is not None:
            self._received = rest[length:]
            self._response.set_result((int(head[9:12]), rest[:length]))


def _content_length(head: bytes) -> int:
    if head[9:12] == b"%d" % NO_CONTENT:
        return 0
    after = head.lower().partition(b"\ncontent-length:")[2]
    return int(after.partition(b"\r")[0])


def post(path: str, body: bytes) -> bytes:
    """Return a request with a JSON body."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    """Open connections, which are closed at the end of the block."""
    loop = asyncio.get_running_loop()
    opened = [
        (await loop.create_connection(Connection, "127.0.0.1", port))[1] for _ in range(count)
    ]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()


async def in_parallel(
    opened: list[Connection], count: int, act: Callable[[Connection], Awaitable[None]]
) -> None:
    """Act `count` times, at the same time on all connections."""
    left = iter(range(count))

    async def repeat(connection: Connection) -> None:
        for _ in left:
            await act(connection)

    await asyncio.gather(*map(repeat, opened))
