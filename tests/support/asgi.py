"""Send requests to an ASGI application without a server."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rabbitdelay.gateway.http.asgi import App, Message, Scope

ASGI_HEADERS = list[tuple[bytes, bytes]]


@dataclass
class Answer:
    """What an application sent; `status` is None if it sent nothing."""

    status: int | None = None
    headers: ASGI_HEADERS = field(default_factory=list)
    body: bytes = b""
    reads: int = 0
    """How often the application asked for a part of the body."""

    def header(self, name: str) -> str | None:
        """Return the only value of a header."""
        values = [value.decode() for key, value in self.headers if key.decode() == name]
        assert len(values) <= 1
        return values[0] if values else None

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON value
        """The body, as JSON."""
        return json.loads(self.body)


def scope_of(
    method: str = "POST",
    path: str = "/v1/jobs",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    **members: object,
) -> Scope:
    """Return the scope of a request from loopback; `Host` is localhost unless it is given."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    given = [(name.lower().encode(), value.encode()) for name, value in pairs]
    if b"host" not in {name for name, _ in given}:
        given.append((b"host", b"localhost:8000"))
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": given,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
        **members,
    }


async def ask(
    app: App,
    scope: Scope,
    parts: Iterable[bytes] = (b"",),
    *,
    ends: bool = True,
    leaves: bool = False,
) -> Answer:
    """Send a request and return its answer.

    With `leaves`, the client closes the connection after the parts; without `ends`, it does so
    before the body is complete.
    """
    answer = Answer()
    pending = list(parts)
    messages: list[Message] = [
        {"type": "http.request", "body": part, "more_body": not ends or index < len(pending) - 1}
        for index, part in enumerate(pending)
    ]
    is_over = asyncio.Event()
    if leaves or not ends:
        is_over.set()

    async def receive() -> Message:
        answer.reads += 1
        await asyncio.sleep(0)
        if messages:
            return messages.pop(0)
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert answer.status is None
            answer.status = message["status"]
            answer.headers = list(message["headers"])
        else:
            answer.body += message.get("body", b"")
            if not message.get("more_body"):
                is_over.set()

    await app(scope, receive, send)
    return answer


def request(
    app: App,
    method: str = "POST",
    path: str = "/v1/jobs",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    *parts: bytes,
    **members: object,
) -> Answer:
    """Send a request and wait for its answer, for tests that are not asynchronous."""
    return asyncio.run(ask(app, scope_of(method, path, headers, **members), parts or (b"",)))
