"""Gateways on the broker in memory, whose clock the test moves."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from rabbitdelay.gateway import GatewayApp, GatewaySettings
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.leases.held_jobs import HeldJob
from rabbitdelay.gateway.waiting.caller_gone import CallerGone
from rabbitdelay.models import Job, make_spec
from rabbitdelay.testing import MemoryBroker
from tests.support.jobs.connections import cut
from tests.support.patience import patience

READY_SECONDS = 5.0
"""Time on the virtual clock in which gateways connect and learn of each other."""


class GatewayStage:
    """A broker in memory, and gateways that share it."""

    def __init__(self, broker: MemoryBroker, stack: AsyncExitStack) -> None:
        self.broker = broker
        self._stack = stack

    async def gateway(self, settings: GatewaySettings | None = None) -> Gateway:
        """Start a gateway. It is closed with the stage."""
        app = GatewayApp(transport=self.broker, stabilise_seconds=0, settings=settings)
        gateway = await self._stack.enter_async_context(app.running())
        assert gateway._connecting is not None
        await gateway._connecting
        await self.pass_time(READY_SECONDS)
        return gateway

    async def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        await self.broker.aio_advance(seconds)

    async def put(self, topic: str = "t", body: object = None, **options: Any) -> Job:  # noqa: ANN401 - passed on
        """Put a job with a client of its own."""
        client = self.broker.aio_client()
        job = await client.put(topic, body, **options)
        await client.close()
        return job

    async def disconnect(self, gateway: Gateway) -> None:
        """Cut the connection with the leases of a gateway, and wait until it is back."""
        side = gateway._engine.connections.current_consuming_side
        assert side is not None
        assert cut(side.consumer._connector)
        await self.pass_time(READY_SECONDS)

    async def silence(self, gateway: Gateway) -> None:
        """Have a gateway answer no questions of others any more."""

        async def never(*_: object) -> Any:  # noqa: ANN401 - never returns
            await asyncio.Event().wait()

        gateway._peers._serve = never


async def pop(gateway: Gateway, topic: str = "t", wait: float = 0) -> HeldJob:
    """Return the next job of a topic."""
    found = await pop_any(gateway, topic, wait)
    assert found, f"no job in {topic}"
    return found[0]


async def pop_any(gateway: Gateway, topic: str = "t", wait: float = 0) -> list[HeldJob]:
    """Return the next job of a topic, if there is one."""
    return await gateway.pop([topic], max=1, wait=wait, caller_gone=CallerGone())


def on_stage(play: Callable[[GatewayStage], Awaitable[None]]) -> None:
    """Run a test on a stage of its own."""

    async def run() -> None:
        async with (
            asyncio.timeout(patience(30)),
            MemoryBroker() as broker,
            AsyncExitStack() as stack,
        ):
            await play(GatewayStage(broker, stack))

    asyncio.run(run())


async def put_by(gateway: Gateway, topic: str = "t", body: object = None, **options: Any) -> Job:  # noqa: ANN401 - passed on
    """Put a job through a gateway; with `reply`, its response is wanted."""
    reply = options.pop("reply", False)
    return await gateway.put(make_spec(topic, body, **options), reply=reply)
