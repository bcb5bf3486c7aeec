"""The access log: one JSON object per request, without anything that is secret or a job's data.

A line has the route's template and not the path, because paths contain ids; no query, no body, no
lease and no token. JSON escapes control characters, so that a caller cannot forge a line.
"""

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from rabbitdelay.gateway.http.asgi import App, Message, Receive, Scope, Send
from rabbitdelay.gateway.http.request_id import request_id_of

LOGGER = "rabbitdelay.gateway.access"
logger = logging.getLogger(LOGGER)
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class AccessLog:
    """An ASGI layer that logs every request when it has been answered, or given up."""

    def __init__(self, app: App, caller_name: Callable[[Scope], str | None]) -> None:
        self._app = app
        self._caller_name = caller_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or not logger.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        traffic = _Traffic()

        async def count_received() -> Message:
            message = await receive()
            traffic.received_bytes += len(message.get("body", b""))
            return message

        async def count_sent(message: Message) -> None:
            traffic.status = message.get("status", traffic.status)
            traffic.sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, count_received, count_sent)
        finally:
            logger.info("%s", self._line(scope, traffic))

    def _line(self, scope: Scope, traffic: "_Traffic") -> str:
        client = scope.get("client")
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": "request",
            "request_id": request_id_of(scope),
            "caller": self._caller_name(scope),
            "method": scope["method"],
            "route": _template(scope),
            "status": traffic.status,
            "duration_ms": traffic.age_ms,
            "received_bytes": traffic.received_bytes,
            "sent_bytes": traffic.sent_bytes,
            "peer": client[0] if client else None,
        }
        return _ENCODER.encode(line)


class _Traffic:
    """Facts about a request and its answer so far."""

    __slots__ = ("_began_at", "received_bytes", "sent_bytes", "status")

    def __init__(self) -> None:
        self._began_at = time.perf_counter()
        self.status: int | None = None
        """None while nothing was answered, as when the client has gone away."""
        self.received_bytes = 0
        self.sent_bytes = 0

    @property
    def age_ms(self) -> float:
        """Milliseconds since the request arrived."""
        return round((time.perf_counter() - self._began_at) * 1000, 3)


def _template(scope: Scope) -> str | None:
    """Return the path of the route, such as `/v1/jobs/{id}`, or None if no route matched."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else None
