"""Settling jobs by their leases."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers, requests
from rabbitdelay.gateway.bodies.requests import (
    BuryRequest,
    FinishRequest,
    LeaseRequest,
    ReleaseRequest,
)
from rabbitdelay.gateway.routes.context import CallerOf, GatewayOf

router = APIRouter(prefix="/v1", tags=["leases"])


@router.post("/finish", status_code=204)
async def finish_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Finish jobs: remove them permanently."""
    asked = requests.read(FinishRequest, await request.body())
    for lease in asked.all():
        caller.require("consume", gateway.topic_of(lease))
        await gateway.finish(lease)
    return Response(status_code=204)


@router.post("/release", status_code=204)
async def release_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Release a job, so that it is retried."""
    asked = requests.read(ReleaseRequest, await request.body())
    caller.require("consume", gateway.topic_of(asked.lease))
    await gateway.release(asked.lease, asked.delay)
    return Response(status_code=204)


@router.post("/touch")
async def touch_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Restart a job's ttr."""
    asked = requests.read(LeaseRequest, await request.body())
    caller.require("consume", gateway.topic_of(asked.lease))
    return answers.as_json({"time_left": round(await gateway.touch(asked.lease), 3)})


@router.post("/bury", status_code=204)
async def bury_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Bury a job for a person to look at."""
    asked = requests.read(BuryRequest, await request.body())
    caller.require("consume", gateway.topic_of(asked.lease))
    await gateway.bury(asked.lease, asked.reason)
    return Response(status_code=204)
