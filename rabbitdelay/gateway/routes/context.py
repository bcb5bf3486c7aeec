"""Context of every route: the gateway, the caller, and whether the caller is still connected."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, cast

from fastapi import Depends, Request

from rabbitdelay.gateway.access.caller import Caller, caller_of
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.http.connection import watch_of
from rabbitdelay.gateway.leases.held_jobs import HeldJob
from rabbitdelay.gateway.waiting.caller_gone import CallerGone


async def gateway_of(request: Request) -> Gateway:
    """Return the running gateway."""
    return cast("Gateway", request.app.state.gateway_app.gateway)


def content_type_of(request: Request) -> str:
    """Return the content type of a request; empty if it has none."""
    return request.headers.get("content-type", "")


@asynccontextmanager
async def caller_gone(request: Request) -> AsyncIterator[CallerGone]:
    """Return an event that is set when the client closes its connection."""
    watched = watch_of(request.scope)
    if watched is not None:
        yield watched.gone
        return
    gone = CallerGone()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    watching = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        watching.cancel()


@asynccontextmanager
async def returning_if_lost(
    request: Request, gateway: Gateway
) -> AsyncIterator[Callable[[Sequence[HeldJob]], None]]:
    """Return a function for jobs that are about to be sent to the client.

    They go back to their queues if the client does not receive them.
    """
    held: list[HeldJob] = []
    watch = watch_of(request.scope)
    try:
        yield held.extend
    except BaseException:
        await gateway.give_back(held)
        raise
    if watch is not None and held:
        watch.if_lost(lambda: gateway.give_back_soon(held))


GatewayOf = Annotated[Gateway, Depends(gateway_of)]
CallerOf = Annotated[Caller, Depends(caller_of)]
