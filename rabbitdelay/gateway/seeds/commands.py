"""The protocol with one endpoint: `POST /` with a `command`."""

from collections.abc import Awaitable, Callable
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

router = APIRouter(tags=["compatible protocols"])

Command = Callable[[Request, Gateway, Caller, Members], Awaitable[dict[str, Any]]]


@router.post("/", operation_id="runCommand")
async def run_command(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Run a command: `add`, `pop`, `finish` or `delete`."""
    empty = {"success": True, "error": "", "id": "", "value": ""}
    try:
        members = Members.of(await request.body())
        answer = await _command(members)(request, gateway, caller, members)
    except ERRORS as error:
        return answers.as_json(empty | {"success": False, "error": str(error)})
    return answers.as_json(empty | answer)


def _command(members: Members) -> Command:
    name = members.text("command")
    if name not in _COMMANDS:
        raise InvalidRequest(f"unknown command {name[:40]!r}: use {', '.join(_COMMANDS)}")
    return _COMMANDS[name]


async def _add(_: Request, gateway: Gateway, caller: Caller, members: Members) -> dict[str, Any]:
    job_id = members.text("id") if members.value("id") is not None else None
    put = members.put(job_id, members.seconds("delay"), members.seconds("ttr", "TTR"))
    caller.require("put", put.spec.topic)
    return {"id": (await gateway.put(put.spec)).id}


async def _pop(
    request: Request, gateway: Gateway, caller: Caller, members: Members
) -> dict[str, Any]:
    wait = members.seconds("wait")
    seconds = 0.0 if wait is None else wait.total_seconds()
    found = await pop_first(request, gateway, caller, members.topics(), seconds)
    if found is None:
        return {}
    return {"id": found.job.id, **body_member("value", found.job.payload)}


async def _finish(_: Request, gateway: Gateway, caller: Caller, members: Members) -> dict[str, Any]:
    job_id = members.text("id")
    caller.require_id("consume", job_id)
    await gateway.finish_id(job_id)
    return {"id": job_id}


async def _delete(_: Request, gateway: Gateway, caller: Caller, members: Members) -> dict[str, Any]:
    job_id = members.text("id")
    caller.require_id("put", job_id)
    await gateway.delete(job_id)
    return {"id": job_id}


_COMMANDS: dict[str, Command] = {
    "add": _add,
    "pop": _pop,
    "finish": _finish,
    "delete": _delete,
}
