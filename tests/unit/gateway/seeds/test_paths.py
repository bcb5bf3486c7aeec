"""The protocol with paths: /push, /pop, /finish, /delete and /get."""

import asyncio
from typing import Any

import pytest

from rabbitdelay.gateway import GatewaySettings
from tests.support.gateway.memory_gateway import MemoryGateway, run, until_waiting

DONE = {"code": 0, "message": "ok", "data": None}
PUSH = {"topic": "t", "id": "x", "delay": 1, "ttr": 5, "body": "hello"}


async def call(gateway: MemoryGateway, path: str, **members: object) -> dict[str, Any]:
    answer = await gateway.post(path, members, headers={"content-type": "text/plain"})
    assert answer.status == 200
    return dict(answer.json)


def test_a_job_is_pushed_popped_and_finished() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert await call(gateway, "/push", **PUSH) == DONE
        popped = await call(gateway, "/pop", topic="t")
        assert popped == DONE | {"data": {"id": "x", "body": "hello"}}
        assert await call(gateway, "/finish", id="x") == DONE
        assert await call(gateway, "/pop", topic="t", wait=20) == DONE

    run(scenario)


def test_a_push_replaces_the_job_with_its_id() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for body in ("old", "new"):
            assert await call(gateway, "/push", **PUSH | {"body": body}) == DONE
        assert (await call(gateway, "/pop", topic="t"))["data"]["body"] == "new"
        assert await call(gateway, "/pop", topic="t", wait=2) == DONE

    run(scenario)


def test_a_pop_waits_for_as_long_as_the_gateway_allows() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await call(gateway, "/push", **PUSH | {"delay": 6})
        assert await call(gateway, "/pop", topic="t") == DONE
        assert (await call(gateway, "/pop", topic="a,t"))["data"]["id"] == "x"

    run(scenario, GatewaySettings(max_wait=5))


def test_a_pop_ends_when_the_gateway_stops() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        polling = asyncio.create_task(call(gateway, "/pop", topic="never"))
        await until_waiting(gateway.gateway)
        gateway.gateway.stop_handing_out()
        assert await polling == DONE
        refused = await call(gateway, "/pop", topic="t")
        assert (refused["code"], refused["data"]) == (1, None)

    run(scenario)


@pytest.mark.parametrize("path", ["/finish", "/delete"])
def test_an_unknown_id_is_not_an_error(path: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert await call(gateway, path, id="never") == DONE

    run(scenario)


@pytest.mark.parametrize(
    ("path", "members", "message"),
    [
        ("/push", {"id": " "}, "id is empty"),
        ("/push", {"topic": ""}, "topic is empty"),
        ("/push", {"delay": 0}, "delay must be from 1 to 2147483647 seconds"),
        ("/push", {"delay": 2**31}, "delay must be from 1 to 2147483647 seconds"),
        ("/push", {"delay": 2**31 - 1}, "delay must be at most 9 years"),
        ("/push", {"delay": "x"}, "invalid delay"),
        ("/push", {"ttr": 86_401}, "ttr must be from 1 to 86400 seconds"),
        ("/push", {"ttr": None}, "ttr must be from 1 to 86400 seconds"),
        ("/push", {"body": {"a": 1}}, "body must be a string"),
        ("/pop", {"topic": " "}, "topic is empty"),
        ("/finish", {"id": ""}, "id is empty"),
        ("/delete", {"id": None}, "id is empty"),
        ("/get", {}, "cannot be searched"),
    ],
)
def test_a_failure_says_why(path: str, members: dict[str, object], message: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await call(gateway, path, **PUSH | members)
        assert (answer["code"], answer["data"]) == (1, None)
        assert message in answer["message"]

    run(scenario)


def test_a_request_that_is_not_json_is_a_failure() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for path in ("/push", "/pop", "/finish", "/delete"):
            answer = await gateway.post(path, content=b"topic=t")
            assert (answer.status, answer.json["code"]) == (200, 1)

    run(scenario)


def test_a_blocked_broker_is_a_failure_of_the_protocol() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        with gateway.broker.block("low on memory"):
            first = await call(gateway, "/push", **PUSH)
            second = await call(gateway, "/push", **PUSH)
        assert (first["code"], second["code"]) == (1, 1)
        assert "low on memory" in second["message"]

    run(scenario)
