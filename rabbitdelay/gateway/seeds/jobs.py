"""Handling of popped jobs and of errors, shared by both protocols."""

from base64 import b64encode
from typing import Any

from fastapi import Request

from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.gateway.access.caller import Caller
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.leases.held_jobs import HeldJob
from rabbitdelay.gateway.problems import Refusal
from rabbitdelay.gateway.routes.context import caller_gone, returning_if_lost

ERRORS = (RabbitDelayError, Refusal)
"""Errors answered as failures of the protocol. Others are faults of the gateway."""


async def pop_first(
    request: Request, gateway: Gateway, caller: Caller, topics: list[str], wait: float
) -> HeldJob | None:
    """Reserve the next job of the first topic that has one, for the client of a request."""
    for topic in topics:
        caller.require("consume", topic)
    async with returning_if_lost(request, gateway) as send:
        async with caller_gone(request) as gone:
            found = await gateway.pop_by_priority(topics, wait=wait, caller_gone=gone)
        send(found)
    return found[0] if found else None


def body_member(name: str, payload: bytes) -> dict[str, Any]:
    """Return a body as a text, or in base64 if it is not text, with a member that says so."""
    try:
        return {name: payload.decode()}
    except UnicodeDecodeError:
        return {name: b64encode(payload).decode(), "encoding": "base64"}
