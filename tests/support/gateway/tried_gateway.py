"""A gateway that is tried with any requests, and what must be true of its answers and its log."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from rabbitdelay.gateway import GatewayApp, GatewaySettings
from rabbitdelay.gateway.access.rights import RIGHTS
from rabbitdelay.gateway.access.token_file import read_tokens
from rabbitdelay.gateway.access.tokens import TokenTable, digest_of
from rabbitdelay.testing import MemoryBroker
from tests.support.asgi import Answer, ask, scope_of
from tests.support.patience import patience

Result = TypeVar("Result")
START = datetime(2030, 1, 1, tzinfo=UTC)
SECRETS = {
    "all": "rdt_secret-of-all",
    "orders": "rdt_secret-of-orders",
    **{right: f"rdt_secret-of-{right}" for right in RIGHTS},
    **{f"{right} elsewhere": f"rdt_secret-of-{right}-elsewhere" for right in RIGHTS},
}
"""The tokens of these tests, each by the access that it has."""


def _line(name: str, text: str) -> str:
    topics = "elsewhere" if name.endswith("elsewhere") else "*"
    rights = ",".join(RIGHTS) if name == "all" else name.split(maxsplit=1)[0]
    if name == "orders":
        rights, topics = "put,consume", "order*"
    return f"{name.replace(' ', '-')} {rights} {topics} sha256:{digest_of(text.encode()).hex()}"


TOKENS = TokenTable(
    read_tokens("\n".join(_line(*item) for item in SECRETS.items()).encode(), "tokens")
)
SETTINGS = GatewaySettings(
    max_body_bytes=10_000, max_request_bytes=50_000, max_wait=1, tokens=lambda: TOKENS
)


class TriedGateway:
    """A gateway on a broker in memory, which serves all examples of a test."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        self._runner.run(self._start())
        self.document: dict[str, Any] = self.send("GET", "/openapi.json").json
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        async def bounded() -> Result:
            async with asyncio.timeout(patience(20)):
                return await work

        return self._runner.run(bounded())

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        token: str | None = "all",  # noqa: S107 - a name of one
        **members: object,
    ) -> Answer:
        """Send a request as the owner of a token, and return its answer."""
        given = {"Content-Type": "application/json"} | (headers or {})
        if token is not None:
            given["Authorization"] = f"Bearer {SECRETS.get(token, token)}"
        return self.run(ask(self.app, scope_of(method, path, given, **members), [body]))

    async def _start(self) -> None:
        broker = MemoryBroker(start=START, raise_errors=False)
        await self._stack.enter_async_context(broker)
        await broker.aio_client().put("order")
        self.app = GatewayApp(settings=SETTINGS, transport=broker, stabilise_seconds=0)
        await self._stack.enter_async_context(self.app.running())
        async with asyncio.timeout(patience(20)):
            while (await ask(self.app, scope_of("GET", "/readyz"))).status != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def assert_clean(records: Sequence[logging.LogRecord]) -> None:
    """Check that a log has no error, no traceback and no token."""
    assert not [one for one in records if one.levelno >= logging.ERROR or one.exc_info]
    assert "secret-of" not in "\n".join(one.getMessage() for one in records)


def assert_answered(answer: Answer) -> None:
    """Check that an answer is one that a client can act on."""
    assert answer.status is not None
    assert answer.status < 500 or answer.status == 503, answer
    assert b"Traceback" not in answer.body
    assert b"secret-of" not in answer.body
    assert all(b"\n" not in value and b"\r" not in value for _, value in answer.headers)
    if answer.status >= 400:
        assert answer.header("content-type") == "application/problem+json"
        assert answer.json["status"] == answer.status
        assert answer.json["type"].startswith("/problems/")
        if answer.json["type"] != "/problems/leases-lost":  # which lists the leases
            assert len(answer.body) < 10_000, "an error repeats what was sent"
