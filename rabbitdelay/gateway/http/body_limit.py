"""Read the body of a request, within limits of size, time and memory, before a route runs.

A declared length above the limit is refused before a byte of the body is read. A body without a
declared length is read until it exceeds the limit. Uvicorn reads at most 64 KiB per connection
ahead of this layer, and `TimedProtocol` discards what follows a refusal, for a limited time.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from rabbitdelay.gateway.http.asgi import App, Message, Receive, Scope, Send, header_values
from rabbitdelay.gateway.problems import Kind, Refusal, RequestTooLarge, response_to

CLOSE = {"Connection": "close"}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of request bodies."""

    max_bytes: int
    """Size of one body."""
    max_bytes_in_memory: int
    """Size of the bodies of all requests that are being read or served."""
    seconds: float
    """Time in which a body must arrive."""


class RequestTimeout(Refusal):
    """The client did not send its request in time."""

    kind = Kind(408, "The request did not arrive in time")

    @property
    def headers(self) -> Mapping[str, str]:
        """Close the connection: where the next request would begin is unknown."""
        return CLOSE


class AmbiguousLength(Refusal):
    """Two servers may see the end of the body in different places."""

    kind = Kind(400, "The length of the request is ambiguous")

    @property
    def headers(self) -> Mapping[str, str]:
        """Close the connection: where the next request would begin is unknown."""
        return CLOSE


class Overloaded(Refusal):
    """The gateway serves as much as it may."""

    kind = Kind(503, "The gateway is overloaded")


class _ClientGone(Exception):
    """The client closed the connection before its body was complete."""


class BodyLimit:
    """An ASGI layer that passes a request on with its whole body, or refuses it."""

    def __init__(self, app: App, limits: BodyLimits) -> None:
        self._app = app
        self._limits = limits
        self._bytes_in_memory = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kept = _Kept()
        try:
            await self._read(scope, receive, kept)
            await self._app(scope, _replay(kept.take(), receive), send)
        except Refusal as refusal:
            await response_to(refusal)(scope, receive, send)
        except _ClientGone:
            return
        finally:
            self._bytes_in_memory -= kept.size

    async def _read(self, scope: Scope, receive: Receive, kept: "_Kept") -> None:
        _check_framing(scope)
        declared = _declared_bytes(scope)
        if declared > self._limits.max_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.seconds):
                while await self._read_part(receive, kept):
                    pass
        except TimeoutError:
            raise RequestTimeout(
                f"the body did not arrive within {self._limits.seconds:g} s"
            ) from None

    async def _read_part(self, receive: Receive, kept: "_Kept") -> bool:
        """Read a part of the body; return whether more follows."""
        message = await receive()
        if message["type"] != "http.request":
            raise _ClientGone
        part = message.get("body", b"")
        kept.add(part)
        self._bytes_in_memory += len(part)
        if kept.size > self._limits.max_bytes:
            raise self._too_large()
        if self._bytes_in_memory > self._limits.max_bytes_in_memory:
            raise Overloaded("too many large requests at once: try again")
        return bool(message.get("more_body", False))

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"the body has more than {self._limits.max_bytes:,} bytes")


class _Kept:
    """The part of a body that was read so far."""

    __slots__ = ("_body", "size")

    def __init__(self) -> None:
        self._body = bytearray()  # a list of parts would take 60 bytes for a part of one
        self.size = 0

    def add(self, part: bytes) -> None:
        self._body += part
        self.size += len(part)

    def take(self) -> bytes:
        body = bytes(self._body)
        self._body.clear()
        return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that has the whole body first, and then what follows it."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body_first() -> Message:
        return pending.pop() if pending else await receive()

    return receive_body_first


def _check_framing(scope: Scope) -> None:
    """Refuse a body whose end two servers may see in different places: request smuggling."""
    if not header_values(scope, b"transfer-encoding"):
        return
    if header_values(scope, b"content-length") or scope.get("http_version") == "1.0":
        raise AmbiguousLength("Transfer-Encoding must not come with Content-Length or in HTTP/1.0")


def _declared_bytes(scope: Scope) -> int:
    values = header_values(scope, b"content-length")
    if not values:
        return 0
    if len(set(values)) > 1 or not values[0].isdigit() or len(values[0]) > 20:  # noqa: PLR2004
        raise AmbiguousLength("Content-Length must be one number")
    return int(values[0])
