"""Parked jobs: those that are buried, and those that could not be routed."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers, parked, reader
from rabbitdelay.gateway.bodies.reader import Model
from rabbitdelay.gateway.bodies.requests import (
    ChoiceRequest,
    ListQuery,
    UnroutedChoiceRequest,
    UnroutedListQuery,
)
from rabbitdelay.gateway.routes.context import CallerOf, GatewayOf, content_type_of

router = APIRouter(prefix="/v1", tags=["parked jobs"])


@router.get("/topics/{topic}/buried", operation_id="listBuried")
async def list_buried(
    topic: str, query: Annotated[ListQuery, Query()], gateway: GatewayOf, caller: CallerOf
) -> Response:
    """List the buried jobs of a topic, and leave them buried."""
    caller.require("admin", topic)
    buried = gateway.buried(topic)
    total = await buried.count()
    found = [one async for one in buried.list(limit=query.most, id=query.id)]
    return parked.listing(map(parked.buried_facts, found), found, total, bodies=query.bodies)


@router.post("/topics/{topic}/buried/kick", operation_id="kickBuried")
async def kick_buried(
    topic: str, request: Request, gateway: GatewayOf, caller: CallerOf
) -> Response:
    """Make buried jobs ready at once, with attempt 1."""
    caller.require("admin", topic)
    asked = await _read(ChoiceRequest, request)
    sent = await gateway.buried(topic).kick(id=asked.chosen(), limit=asked.limit)
    return answers.as_json(
        {"kicked": sent.sent, "stayed": sent.stayed, "dropped_deleted": sent.dropped_deleted}
    )


@router.post("/topics/{topic}/buried/drop", operation_id="dropBuried")
async def drop_buried(
    topic: str, request: Request, gateway: GatewayOf, caller: CallerOf
) -> Response:
    """Remove buried jobs permanently."""
    caller.require("admin", topic)
    asked = await _read(ChoiceRequest, request)
    dropped = await gateway.buried(topic).drop(id=asked.chosen(), limit=asked.limit)
    return answers.as_json({"dropped": dropped})


@router.get("/unrouted", operation_id="listUnrouted")
async def list_unrouted(
    query: Annotated[UnroutedListQuery, Query()], gateway: GatewayOf, caller: CallerOf
) -> Response:
    """List the jobs that could not be routed, and leave them where they are."""
    caller.require("admin", query.topic)
    unrouted = gateway.unrouted()
    total = await unrouted.count()
    listed = unrouted.list(limit=query.most, topic=query.topic, id=query.id)
    found = [one async for one in listed]
    return parked.listing(map(parked.unrouted_facts, found), found, total, bodies=query.bodies)


@router.post("/unrouted/retry", operation_id="retryUnrouted")
async def retry_unrouted(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Publish unrouted jobs again with the rest of their delay."""
    asked = await _read(UnroutedChoiceRequest, request)
    caller.require("admin", asked.topic)
    sent = await gateway.unrouted().retry(topic=asked.topic, id=asked.chosen(), limit=asked.limit)
    return answers.as_json({"retried": sent.sent, "stayed": sent.stayed})


@router.post("/unrouted/drop", operation_id="dropUnrouted")
async def drop_unrouted(request: Request, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Remove unrouted jobs permanently."""
    asked = await _read(UnroutedChoiceRequest, request)
    caller.require("admin", asked.topic)
    dropped = await gateway.unrouted().drop(topic=asked.topic, id=asked.chosen(), limit=asked.limit)
    return answers.as_json({"dropped": dropped})


async def _read(model: type[Model], request: Request) -> Model:
    reader.require_json(content_type_of(request))
    return reader.read(model, await request.body())
