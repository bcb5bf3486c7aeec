"""Bound the time and the number of connections: uvicorn's HTTP protocol, with deadlines.

Uvicorn has a timer between two requests, and none within one. Here each connection has at most one
deadline, for what it is waiting for: the headers of a request, the rest of a body that was refused,
or a client that does not read its answer. `BodyLimit` has the deadline of a body that is read.
"""

import asyncio
import sys
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rabbitdelay.gateway.http.asgi import Receive, Scope, Send
from rabbitdelay.gateway.http.body_limit import CLOSE, Overloaded, RequestTimeout
from rabbitdelay.gateway.http.request_id import FIXED_HEADERS
from rabbitdelay.gateway.problems import Kind, Refusal, response_to


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections."""

    max_connections: int = 4096
    """More are answered 503, and far more are closed at once."""
    max_header_bytes: int = 16 * 1024
    keep_alive_seconds: int = 75
    """Time between two requests; longer than that of common load balancers, which close first."""
    header_seconds: float = 10.0
    """Time in which the headers of a request must arrive."""
    discard_seconds: float = 5.0
    """Time in which the body of a refused request is read and thrown away.

    A connection that is closed while the client is still sending is reset, and then the client may
    never see the answer.
    """
    stall_seconds: float = 30.0
    """Time in which a client must read some of an answer."""


SPARE_CONNECTIONS = 64
"""Connections above the limit that get an answer."""


class InvalidHttp(Refusal):
    """The bytes that a client sent are not HTTP/1.1."""

    kind = Kind(400, "The request is not valid HTTP")


class HeadersTooLarge(Refusal):
    """The headers are larger than the gateway accepts."""

    kind = Kind(431, "The headers are too large")


class _WaitsFor(Enum):
    """The event that a connection is waiting for."""

    HEADERS = auto()
    DISCARDED_BODY = auto()
    READER = auto()
    """The client, which must read its answer."""


class TimedProtocol(H11Protocol):
    """A connection whose client cannot hold it for ever."""

    limits = ConnectionLimits()
    """A subclass per server has its own: uvicorn constructs the protocol."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **options)
        self._waits_for: _WaitsFor | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unread_bytes = 0
        """Unread part of the answers when the deadline was set."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if there are too many."""
        super().connection_made(transport)
        excess = len(self.connections) - self.limits.max_connections
        if excess > SPARE_CONNECTIONS:
            transport.abort()
            return
        if excess > 0:
            self.app = _answer_busy
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Start the time in which the client must read some of the answer."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._set(None)
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without a further request."""
        super().timeout_keep_alive_handler()
        # Closing waits for the client to read what it was sent.
        if self.transport.get_write_buffer_size():
            self._set(_WaitsFor.READER)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, with the status that h11 suggests."""
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else None
        kind = HeadersTooLarge if status == HeadersTooLarge.kind.status else InvalidHttp
        self._refuse(kind(msg))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and close. After an answer has begun, there is nothing left to say."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            response = response_to(refusal)
            headers = [*response.raw_headers, *FIXED_HEADERS, (b"connection", b"close")]
            parts = (
                h11.Response(status_code=response.status_code, headers=headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            )
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
        self.transport.close()
        if self.cycle is not None:  # it may still run, and must not answer after this
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _watch(self) -> None:
        waits_for = self._current_wait()
        if waits_for is not self._waits_for:
            self._set(waits_for)

    def _current_wait(self) -> _WaitsFor | None:
        if self.transport.is_closing():
            return _WaitsFor.READER if self.transport.get_write_buffer_size() else None
        if self.flow.write_paused:
            return _WaitsFor.READER
        theirs = self.conn.their_state
        if theirs is h11.IDLE:
            # Between two requests, uvicorn's timer runs until the first byte arrives.
            return None if self.timeout_keep_alive_task else _WaitsFor.HEADERS
        if theirs is h11.SEND_BODY and self.cycle.response_complete:
            return _WaitsFor.DISCARDED_BODY
        return None

    def _has_read_some(self) -> bool:
        """Whether the client has read some of its answer since the deadline was set."""
        return self.transport.get_write_buffer_size() < self._unread_bytes

    def _set(self, waits_for: _WaitsFor | None) -> None:
        self._waits_for = waits_for
        self._unread_bytes = self.transport.get_write_buffer_size()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if waits_for is not None:
            self._deadline = self.loop.call_later(self._seconds(waits_for), self._expire)

    def _seconds(self, waits_for: _WaitsFor) -> float:
        match waits_for:
            case _WaitsFor.HEADERS:
                return self.limits.header_seconds
            case _WaitsFor.DISCARDED_BODY:
                return self.limits.discard_seconds
            case _WaitsFor.READER:
                return self.limits.stall_seconds

    def _expire(self) -> None:
        if self._waits_for is _WaitsFor.READER and self._has_read_some():
            self._set(_WaitsFor.READER)
            return
        began_headers = self._waits_for is _WaitsFor.HEADERS and bool(self.conn.trailing_data[0])
        self._deadline = None
        if began_headers:
            seconds = self.limits.header_seconds
            self._refuse(RequestTimeout(f"the headers did not arrive within {seconds:g} s"))
        elif self._waits_for is _WaitsFor.HEADERS:
            self.transport.close()  # a connection without a request needs no answer
        else:
            self.transport.abort()


def limited(protocol: type[TimedProtocol], limits: ConnectionLimits) -> type[TimedProtocol]:
    """Return a protocol class with other limits."""
    return type(protocol.__name__, (protocol,), {"limits": limits})


async def _answer_busy(scope: Scope, receive: Receive, send: Send) -> None:
    response = response_to(Overloaded("too many connections: try again"))
    response.headers.update(CLOSE)
    await response(scope, receive, send)
