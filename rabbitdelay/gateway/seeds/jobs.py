"""What both protocols do with a job that was popped, and with an error."""

import asyncio
from base64 import b64encode
from typing import Any

from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.gateway.access.caller import Caller
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.leases.held_jobs import HeldJob
from rabbitdelay.gateway.problems import Refusal

ERRORS = (RabbitDelayError, Refusal)
"""What is answered as a failure of the protocol. Anything else is a fault of the gateway."""


async def pop_first(
    gateway: Gateway, caller: Caller, topics: list[str], wait: float, gone: asyncio.Event
) -> HeldJob | None:
    """Reserve the next job of the first topic that has one."""
    for topic in topics:
        caller.require("consume", topic)
    found = await gateway.pop_by_priority(topics, wait=wait, caller_gone=gone)
    return found[0] if found else None


def body_member(name: str, payload: bytes) -> dict[str, Any]:
    """Return a body as a text, or in base64 if it is not text, with a member that says so."""
    try:
        return {name: payload.decode()}
    except UnicodeDecodeError:
        return {name: b64encode(payload).decode(), "encoding": "base64"}
