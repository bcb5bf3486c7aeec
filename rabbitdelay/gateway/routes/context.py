"""What every route gets: the gateway, the caller, and an event for its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, cast

from fastapi import Depends, Request

from rabbitdelay.gateway.access.caller import Caller, caller_of
from rabbitdelay.gateway.gateway import Gateway


async def gateway_of(request: Request) -> Gateway:
    """Return the running gateway."""
    return cast("Gateway", request.app.state.gateway_app.gateway)


def content_type_of(request: Request) -> str:
    """Return the content type of a request; empty if it has none."""
    return request.headers.get("content-type", "")


@asynccontextmanager
async def caller_gone(request: Request) -> AsyncIterator[asyncio.Event]:
    """Return an event that is set when the client closes its connection."""
    gone = asyncio.Event()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    watching = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        watching.cancel()


GatewayOf = Annotated[Gateway, Depends(gateway_of)]
CallerOf = Annotated[Caller, Depends(caller_of)]
