"""A gateway on the broker in memory, whose answers are checked against the OpenAPI document."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any

from rabbitdelay.gateway import GatewayApp, GatewaySettings
from rabbitdelay.gateway.bodies.answer_schemas import ProblemAnswer
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.openapi import OPERATIONS
from rabbitdelay.gateway.problems import MEDIA_TYPE
from rabbitdelay.models import JSON, media_type
from rabbitdelay.testing import MemoryBroker
from tests.support.asgi import Answer, ask, scope_of

START = datetime(2030, 1, 1, tzinfo=UTC)
Scenario = Callable[["MemoryGateway"], Awaitable[None]]


class MemoryGateway:
    """A gateway and its broker in memory."""

    def __init__(self, app: GatewayApp, gateway: Gateway, broker: MemoryBroker) -> None:
        self.app = app
        self.gateway = gateway
        self.broker = broker
        self._document = _document()

    async def ask(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        leaves: bool = False,
    ) -> Answer:
        """Send a request, with a JSON value or with any content; return the checked answer."""
        given = dict(headers or {})
        if value is not None:
            content = json.dumps(value).encode()
            given.setdefault("content-type", JSON)
        body = content or b""
        if body:
            given["content-length"] = str(len(body))
        answer = await ask(self.app, scope_of(method, path, given), [body], leaves=leaves)
        if answer.status is not None:
            check(self._document, method, path, answer)
        return answer

    async def post(self, path: str, value: object = None, **options: Any) -> Answer:  # noqa: ANN401
        """Send a POST request with a JSON value."""
        return await self.ask("POST", path, value, **options)

    async def get(self, path: str) -> Answer:
        """Send a GET request."""
        return await self.ask("GET", path)

    async def put(self, **members: object) -> str:
        """Put a job in topic `t`; return its id."""
        answer = await self.post("/v1/jobs", {"topic": "t", **members})
        assert answer.status == 201, answer.body
        return str(answer.json["id"])

    async def pop(self, topics: object = "t", **members: object) -> list[dict[str, Any]]:
        """Pop jobs; return those in the answer."""
        answer = await self.post("/v1/pop", {"topics": topics, **members})
        assert answer.status in {200, 204}, answer.body
        return list(answer.json["jobs"]) if answer.status == 200 else []


@asynccontextmanager
async def memory_gateway(
    settings: GatewaySettings | None = None,
    **options: Any,  # noqa: ANN401 - the options of GatewayApp
) -> AsyncIterator[MemoryGateway]:
    """Run a gateway on a broker in memory, whose namespace exists and which is ready."""
    async with MemoryBroker(start=START, raise_errors=False) as broker:
        await broker.aio_client().put("t")
        app = GatewayApp(settings=settings, transport=broker, stabilise_seconds=0, **options)
        async with app.running() as gateway:
            await until_ready(gateway)
            await gateway.client.purge("t")
            yield MemoryGateway(app, gateway, broker)


async def until_ready(gateway: Gateway) -> None:
    """Wait until the gateway has connected and read the log of deletes."""
    assert gateway._connecting is not None
    await gateway._connecting
    gateway.require_ready()


async def until_waiting(gateway: Gateway) -> None:
    """Wait until a client waits for a job."""
    while gateway.stats().waiting == 0:  # noqa: ASYNC110 - every step of the loop may be the one
        await asyncio.sleep(0)


def run(
    scenario: Scenario,
    settings: GatewaySettings | None = None,
    **options: Any,  # noqa: ANN401 - the options of GatewayApp
) -> None:
    """Run a scenario with a gateway of its own."""

    async def running() -> None:
        async with memory_gateway(settings, **options) as gateway:
            await scenario(gateway)

    asyncio.run(running())


@cache
def _document() -> dict[str, Any]:
    return GatewayApp("amqp://nowhere.invalid").openapi


def check(document: Mapping[str, Any], method: str, path: str, answer: Answer) -> None:
    """Check that the document describes an answer: its status, media type and members."""
    operation = operation_at(document, method, path.partition("?")[0])
    if operation is None:
        if path.endswith("/openapi.json"):
            return
        assert answer.status in {400, 403, 404, 405, 413, 421}, answer.body
        ProblemAnswer.model_validate_json(answer.body)
        return
    assert str(answer.status) in operation["responses"], f"{method} {path}: {answer}"
    response = _resolved(document, operation["responses"][str(answer.status)])
    if "content" not in response:
        assert answer.body == b"", answer
        return
    kind = media_type(answer.header("content-type") or "")
    assert kind in response["content"] or "*/*" in response["content"], f"{method} {path}: {kind}"
    if kind == MEDIA_TYPE:
        problem = ProblemAnswer.model_validate_json(answer.body)
        assert problem.status == answer.status
    elif kind == JSON:
        model = OPERATIONS[operation["operationId"]].answers[answer.status or 0]
        if model is not None and answer.header("rabbitdelay-lease") is None:
            model.model_validate_json(answer.body)


def operation_at(document: Mapping[str, Any], method: str, path: str) -> Any:  # noqa: ANN401
    """Return the operation of a request; None if there is none."""
    for template, item in sorted(document["paths"].items(), key=lambda one: "{" in one[0]):
        pattern = "".join(
            "[^/]+" if part.startswith("{") else re.escape(part)
            for part in re.split(r"({\w+})", template)
        )
        if re.fullmatch(pattern, path) and method.lower() in item:
            return item[method.lower()]
    return None


def _resolved(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in value:
        return value
    found: Any = document
    for name in value["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    resolved: Mapping[str, Any] = found
    return resolved
