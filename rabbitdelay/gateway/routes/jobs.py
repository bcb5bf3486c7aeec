"""Putting, replacing and deleting jobs, and their responses."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers, put_requests, reader
from rabbitdelay.gateway.bodies.requests import DeleteRequest, WaitQuery
from rabbitdelay.gateway.http.paths import id_in_path
from rabbitdelay.gateway.routes.context import (
    CallerOf,
    GatewayOf,
    caller_gone,
    content_type_of,
)

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post("", operation_id="putJob")
async def put_job(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Put one job, and answer once the broker has confirmed it."""
    query = reader.distinct(request.query_params.multi_items())
    put = put_requests.read_put(content_type_of(request), query, await request.body())
    caller.require("put", put.spec.topic)
    job = await gateway.put(put.spec, reply=put.reply)
    return answers.put_job(job, request.scope.get("root_path", ""))


@router.post("/batch", operation_id="putJobs")
async def put_jobs(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Put many jobs, and answer once the broker has confirmed all of them."""
    puts = put_requests.read_many(content_type_of(request), await request.body())
    for topic in {put.spec.topic for put in puts}:
        caller.require("put", topic)
    return answers.put_jobs(await gateway.put_many(puts))


@router.post("/delete", operation_id="deleteJobs")
async def delete_jobs(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Delete all jobs with these ids, whatever their state."""
    reader.require_json(content_type_of(request))
    asked = reader.read(DeleteRequest, await request.body())
    for id in asked.ids:  # noqa: A001 - the word of the domain
        caller.require_id("put", id)
    return answers.as_json({"deleted": await gateway.delete_many(asked.ids)})


@router.put("/{id}", operation_id="replaceJob")
async def replace_job(id: str, request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Put a job, and delete all jobs that were put with the same id before."""
    spec = put_requests.read_replace(content_type_of(request), await request.body(), id_in_path(id))
    caller.require("put", spec.topic)
    caller.require_id("put", id_in_path(id))
    return answers.as_json(answers.put_facts(await gateway.replace(spec)))


@router.delete("/{id}", operation_id="deleteJob")
async def delete_job(id: str, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Delete all jobs with an id, whatever their state."""
    caller.require_id("put", id_in_path(id))
    await gateway.delete(id_in_path(id))
    return answers.nothing()


@router.get("/{id}/response", operation_id="getResponse")
async def response_to_job(
    id: str,
    query: Annotated[WaitQuery, Query()],
    request: Request,
    gateway: GatewayOf,
    caller: CallerOf,
) -> Response:
    """Wait for the response to a job that was put with `reply`."""
    caller.require_id("put", id_in_path(id))
    async with caller_gone(request) as gone:
        found = await gateway.response(
            id_in_path(id), wait=query.wait.total_seconds(), caller_gone=gone
        )
    return answers.nothing() if found is None else answers.job_response(found)
