"""The access log says who did what, and nothing that is secret or a job's data."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitdelay.gateway.http.access_log import LOGGER, AccessLog
from rabbitdelay.gateway.http.asgi import Receive, Scope, Send
from rabbitdelay.gateway.http.request_id import RequestIds
from tests.support.asgi import ask, request, scope_of

SECRET = "rdt_secret"  # noqa: S105 - a token of a test


async def delete(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    scope["route"] = SimpleNamespace(path="/v1/jobs/{id}")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"12345"})


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)


def only_line(caplog: pytest.LogCaptureFixture) -> Any:  # noqa: ANN401 - JSON
    (record,) = caplog.records
    return json.loads(record.getMessage())


def test_a_request_is_one_line_of_json(caplog: pytest.LogCaptureFixture) -> None:
    app = RequestIds(AccessLog(delete, lambda _: "shop"))
    headers = {"Authorization": f"Bearer {SECRET}", "X-Request-Id": "r-1"}
    path = f"/v1/jobs/{SECRET}?topic={SECRET}"
    request(app, "DELETE", path, headers, SECRET.encode(), b"more")
    line = only_line(caplog)
    assert line.pop("duration_ms") >= 0
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "event": "request",
        "request_id": "r-1",
        "caller": "shop",
        "method": "DELETE",
        "route": "/v1/jobs/{id}",
        "status": 200,
        "received_bytes": len(SECRET) + 4,
        "sent_bytes": 5,
        "peer": "127.0.0.1",
    }
    assert "secret" not in caplog.text


def test_a_caller_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    app = AccessLog(delete, lambda _: 'a"}\n{"caller":"\x1b[31m\u2028')
    request(app, 'GET"}\n{', "/\n{}")
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert only_line(caplog)["route"] == "/v1/jobs/{id}"


def test_a_path_without_a_route_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        pass

    request(AccessLog(nothing, lambda _: None), "GET", f"/{SECRET}")
    line = only_line(caplog)
    assert (line["route"], line["status"], line["caller"]) == (None, None, None)


def test_a_request_that_fails_or_is_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError(SECRET)

    async def hanging(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match=SECRET):
        request(AccessLog(failing, lambda _: None))

    async def cancel() -> None:
        task = asyncio.create_task(ask(AccessLog(hanging, lambda _: None), scope_of()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert len(caplog.records) == 2
    assert SECRET not in caplog.text


def test_without_a_reader_of_the_log_nothing_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    assert request(AccessLog(delete, lambda _: None)).status == 200
    assert not caplog.records
