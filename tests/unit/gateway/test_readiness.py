"""/readyz needs no token, and says nothing about the broker but its state."""

import asyncio
from datetime import timedelta

import pytest

from rabbitdelay.gateway import GatewayApp
from rabbitdelay.testing import MemoryBroker
from tests.support.asgi import ask, scope_of
from tests.support.gateway.memory_gateway import MemoryGateway, run, until_ready, until_waiting
from tests.support.patience import patience


def test_the_address_and_the_user_of_the_broker_are_not_told() -> None:
    async def scenario() -> None:
        app = GatewayApp("amqp://someone:hunter2@localhost:1", connect_timeout=0)
        async with app.running() as gateway:
            async with asyncio.timeout(patience(30)):
                while "localhost" not in str(gateway.stats().problem):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            answer = await ask(app, scope_of("GET", "/readyz"))
        assert answer.status == 503
        assert answer.json["type"] == "/problems/broker-unreachable"
        assert answer.header("retry-after") is not None
        for secret in ("someone", "hunter2", "localhost", "amqp"):
            assert secret not in answer.body.decode()

    asyncio.run(scenario())


def test_a_missing_namespace_is_created_by_a_put_that_must_reach_a_gateway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A balancer would send no put to gateways that wait for the first one."""

    async def scenario() -> None:
        async with MemoryBroker(raise_errors=False) as broker:
            app = GatewayApp(transport=broker, stabilise_seconds=0)
            async with app.running() as gateway:
                await until_ready(gateway)
                memory = MemoryGateway(app, gateway, broker)
                polling = asyncio.create_task(memory.pop(wait=50))
                await until_waiting(gateway)
                for _ in range(20):
                    await broker.aio_advance(timedelta(seconds=1))
                    assert (await memory.get("/readyz")).json == {"status": "ready"}
                await memory.put(id="first")
                await broker.aio_advance(timedelta(seconds=5))
                assert [job["id"] for job in await polling] == ["first"]
                assert (await memory.get("/readyz")).json == {"status": "ready"}

    asyncio.run(scenario())
    assert len([one for one in caplog.messages if "no namespace" in one]) <= 2


def test_a_gateway_that_stops_says_so() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        gateway.gateway.stop_handing_out()
        answer = await gateway.get("/readyz")
        assert (answer.status, answer.header("retry-after")) == (503, "2")
        assert answer.json["detail"] == "this gateway is shutting down"

    run(scenario)
