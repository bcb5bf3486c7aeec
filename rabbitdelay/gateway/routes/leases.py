"""Settling jobs by their leases."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers, reader
from rabbitdelay.gateway.bodies.reader import Model
from rabbitdelay.gateway.bodies.requests import (
    BuryRequest,
    FinishRequest,
    LeaseRequest,
    ReleaseRequest,
)
from rabbitdelay.gateway.routes.context import CallerOf, GatewayOf, content_type_of

router = APIRouter(prefix="/v1", tags=["leases"])


@router.post("/finish", operation_id="finishJobs")
async def finish_jobs(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Finish jobs: remove them permanently."""
    asked = await _read(FinishRequest, request)
    leases = asked.all()
    for topic in gateway.topics_of(leases):
        caller.require("consume", topic)
    await gateway.finish_many(leases)
    return answers.nothing()


@router.post("/release", operation_id="releaseJob")
async def release_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Release a job, so that it is retried."""
    asked = await _read(ReleaseRequest, request)
    caller.require("consume", gateway.topic_of(asked.lease))
    await gateway.release(asked.lease, asked.delay)
    return answers.nothing()


@router.post("/touch", operation_id="touchJob")
async def touch_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Restart a job's ttr."""
    asked = await _read(LeaseRequest, request)
    caller.require("consume", gateway.topic_of(asked.lease))
    touched = await gateway.touch(asked.lease)
    return answers.as_json({"time_left": round(touched.time_left, 3), "lease": touched.lease})


@router.post("/bury", operation_id="buryJob")
async def bury_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Bury a job for a person to look at."""
    asked = await _read(BuryRequest, request)
    caller.require("consume", gateway.topic_of(asked.lease))
    await gateway.bury(asked.lease, asked.reason)
    return answers.nothing()


async def _read(model: type[Model], request: Request) -> Model:
    reader.require_json(content_type_of(request))
    return reader.read(model, await request.body())
