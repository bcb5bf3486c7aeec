"""Request ids, which join an answer with the lines of the log that belong to it."""

import re
import secrets
from contextvars import ContextVar

from rabbitdelay.gateway.http.asgi import App, Message, Receive, Scope, Send, header_value, state_of

HEADER = b"x-request-id"
_SANE = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_STATE = "request_id"
current_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the request that is being served."""
FIXED_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]
"""Answers are data of the moment: no browser may take them for a page, no proxy may keep them."""


class RequestIds:
    """An ASGI layer that gives every request an id, and every answer its fixed headers.

    An id that the caller sends is used if it cannot do harm in a log, so that one id can follow a
    request through several services.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given(scope) or secrets.token_hex(8)
        state_of(scope)[_STATE] = request_id
        current_request_id.set(request_id)  # of this request's task
        headers = [(HEADER, request_id.encode()), *FIXED_HEADERS]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with(message.get("headers", ()), headers)
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id_of(scope: Scope) -> str | None:
    """Return the id of a request."""
    request_id = state_of(scope).get(_STATE)
    return request_id if isinstance(request_id, str) else None


def _given(scope: Scope) -> str | None:
    value = header_value(scope, HEADER)
    return value.decode() if value is not None and _SANE.fullmatch(value) else None


def _with(
    headers: list[tuple[bytes, bytes]], added: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in added}
    return [header for header in headers if header[0].lower() not in names] + added
