"""Popping jobs, with long polls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers, requests
from rabbitdelay.gateway.bodies.requests import PopRequest
from rabbitdelay.gateway.routes.context import CallerOf, GatewayOf

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.post("/pop")
async def pop_jobs(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Reserve the next jobs of one topic or several."""
    asked = requests.read(PopRequest, await request.body())
    for topic in asked.topics:
        caller.require("consume", topic)
    async with _caller_gone(request) as gone:
        found = await gateway.pop(
            asked.topics, max=asked.max, wait=asked.wait.total_seconds(), caller_gone=gone
        )
    if not found:
        return Response(status_code=204)
    return answers.held_jobs(found)


@asynccontextmanager
async def _caller_gone(request: Request) -> AsyncIterator[asyncio.Event]:
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
