"""What every route gets: the gateway, the caller and the request's body."""

from typing import Annotated, cast

from fastapi import Depends, Request

from rabbitdelay.gateway.access.caller import Caller, caller_of
from rabbitdelay.gateway.gateway import Gateway


async def gateway_of(request: Request) -> Gateway:
    """Return the running gateway."""
    return cast("Gateway", request.app.state.gateway_app.gateway)


GatewayOf = Annotated[Gateway, Depends(gateway_of)]
CallerOf = Annotated[Caller, Depends(caller_of)]
