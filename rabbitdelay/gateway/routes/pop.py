"""Popping jobs, with long polls."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers, reader
from rabbitdelay.gateway.bodies.requests import PopRequest
from rabbitdelay.gateway.routes.context import (
    CallerOf,
    GatewayOf,
    caller_gone,
    content_type_of,
    returning_if_lost,
)

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.post("/pop", operation_id="popJobs")
async def pop_jobs(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Reserve the next jobs of one topic or several."""
    reader.require_json(content_type_of(request))
    asked = reader.read(PopRequest, await request.body())
    accept = request.headers.get("accept", "")
    is_raw = answers.wants_raw(accept, asked.max)
    for topic in asked.topics:
        caller.require("consume", topic)
    async with returning_if_lost(request, gateway) as send:
        async with caller_gone(request) as gone:
            found = await gateway.pop(
                asked.topics, max=asked.max, wait=asked.wait.total_seconds(), caller_gone=gone
            )
        send(found)
        if not found:
            return answers.nothing()
        return answers.held_job_raw(found[0]) if is_raw else answers.held_jobs(found)
