"""/readyz needs no token, and says nothing about the broker but its state."""

import asyncio

from rabbitdelay.gateway import GatewayApp
from tests.support.asgi import ask, scope_of
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
