"""Health: whether the gateway is alive, and whether it should get requests."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.gateway.problems import Refusal, without_detail
from rabbitdelay.gateway.routes.context import GatewayOf

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="isAlive")
async def alive() -> Response:
    """Report that the process is alive, whatever the state of the broker."""
    return JSONResponse({"status": "alive"})


@router.get("/readyz", operation_id="isReady")
async def ready(gateway: GatewayOf) -> Response:
    """Report whether the gateway is connected and caught up with the log of deletes."""
    try:
        gateway.require_ready()
    except (RabbitDelayError, Refusal) as error:
        return without_detail(error)
    return JSONResponse({"status": "ready"})
