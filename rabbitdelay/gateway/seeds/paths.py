"""The protocol with a path for each verb: /push, /pop, /finish, /delete and /get.

Every answer has status 200. Its `code` is 0 for success and 1 for a failure.
"""

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rabbitdelay.gateway.access.caller import Caller
from rabbitdelay.gateway.bodies import answers
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.problems import InvalidRequest
from rabbitdelay.gateway.routes.context import CallerOf, GatewayOf
from rabbitdelay.gateway.seeds.jobs import ERRORS, body_member, pop_first
from rabbitdelay.gateway.seeds.members import Members

MAX_DELAY_SECONDS = 2**31 - 1
MAX_TTR_SECONDS = 86_400

router = APIRouter(tags=["compatible protocols"])


@router.post("/push", operation_id="push")
async def push(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Put a job; it replaces all jobs with the same id."""
    return await _answer(_push(request, gateway, caller))


@router.post("/pop", operation_id="pop")
async def pop(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Take the next job of a topic, or of several in the order of their priority."""
    return await _answer(_pop(request, gateway, caller))


@router.post("/finish", operation_id="finish")
async def finish(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Finish a job by its id. An unknown id is not an error."""
    return await _answer(_finish(request, gateway, caller))


@router.post("/delete", operation_id="delete")
async def delete(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Delete a job by its id. An unknown id is not an error."""
    return await _answer(_delete(request, gateway, caller))


@router.post("/get", operation_id="get")
async def get(caller: CallerOf) -> Response:
    """Answer that jobs cannot be looked up yet."""
    return await _answer(_get(caller))


async def _answer(doing: Awaitable[dict[str, Any] | None]) -> Response:
    try:
        data = await doing
    except ERRORS as error:
        return answers.as_json({"code": 1, "message": str(error), "data": None})
    return answers.as_json({"code": 0, "message": "ok", "data": data})


async def _push(request: Request, gateway: Gateway, caller: Caller) -> None:
    members = Members.of(await request.body())
    job_id, topic = members.text("id"), members.text("topic")
    caller.require("put", topic)
    caller.require_id("put", job_id)
    delay = _in_range(members, "delay", MAX_DELAY_SECONDS)
    ttr = _in_range(members, "ttr", MAX_TTR_SECONDS)
    if not isinstance(members.value("body"), str):
        raise InvalidRequest("body must be a string")
    await gateway.replace(members.put(job_id, delay, ttr).spec)


async def _pop(request: Request, gateway: Gateway, caller: Caller) -> dict[str, Any] | None:
    members = Members.of(await request.body())
    wait = members.seconds("wait")
    seconds = gateway.settings.max_wait if wait is None else wait.total_seconds()
    found = await pop_first(request, gateway, caller, members.topics(), seconds)
    if found is None:
        return None
    return {"id": found.job.id, **body_member("body", found.job.payload)}


async def _finish(request: Request, gateway: Gateway, caller: Caller) -> None:
    job_id = Members.of(await request.body()).text("id")
    caller.require_id("consume", job_id)
    await gateway.finish_id(job_id)


async def _delete(request: Request, gateway: Gateway, caller: Caller) -> None:
    job_id = Members.of(await request.body()).text("id")
    caller.require_id("put", job_id)
    await gateway.delete(job_id)


async def _get(caller: Caller) -> None:
    caller.require("consume", None)
    raise InvalidRequest("jobs cannot be looked up by id: the broker's queues cannot be searched")


def _in_range(members: Members, name: str, most: int) -> timedelta:
    found = members.seconds(name)
    if found is None or not timedelta(seconds=1) <= found <= timedelta(seconds=most):
        raise InvalidRequest(f"{name} must be from 1 to {most} seconds")
    return found
