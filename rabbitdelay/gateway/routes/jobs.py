"""Putting and deleting jobs."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers, requests
from rabbitdelay.gateway.bodies.requests import PutRequest
from rabbitdelay.gateway.routes.context import CallerOf, GatewayOf

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post("", status_code=201)
async def put_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Put one job."""
    asked = requests.read(PutRequest, await request.body())
    caller.require("put", asked.topic)
    job = await gateway.put(asked.put_spec(), reply=asked.reply)
    headers = {"Location": answers.location(job, request.scope.get("root_path", ""))}
    return answers.as_json(answers.put_job(job), 201, headers)


@router.delete("/{id}", status_code=204)
async def delete_job(id: str, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Delete all jobs with an id."""
    caller.require("put", None)
    await gateway.delete(id)
    return Response(status_code=204)
