"""Topics: counting their jobs, pausing, resuming and purging."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from rabbitdelay.gateway.bodies import answers
from rabbitdelay.gateway.bodies.requests import TopicsQuery
from rabbitdelay.gateway.routes.context import CallerOf, GatewayOf

router = APIRouter(prefix="/v1/topics", tags=["topics"])


@router.get("", operation_id="listTopics")
async def list_topics(
    query: Annotated[TopicsQuery, Query()], gateway: GatewayOf, caller: CallerOf
) -> Response:
    """List all topics with their counts of jobs."""
    caller.require("admin", None)
    return answers.statistics(await gateway.topics(delayed=query.delayed), delayed=query.delayed)


@router.get("/{topic}", operation_id="getTopic")
async def get_topic(topic: str, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Count the jobs of one topic."""
    caller.require("consume", topic)
    return answers.topic(await gateway.topics(topic))


@router.post("/{topic}/pause", operation_id="pauseTopic")
async def pause_topic(topic: str, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Pause a topic: no consumer receives its jobs until it is resumed."""
    caller.require("admin", topic)
    await gateway.pause(topic)
    return answers.nothing()


@router.post("/{topic}/resume", operation_id="resumeTopic")
async def resume_topic(topic: str, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Resume a topic: consumers receive its jobs again."""
    caller.require("admin", topic)
    await gateway.resume(topic)
    return answers.nothing()


@router.post("/{topic}/purge", operation_id="purgeTopic")
async def purge_topic(topic: str, gateway: GatewayOf, caller: CallerOf) -> Response:
    """Delete every job put in a topic so far: delayed, ready and buried."""
    caller.require("admin", topic)
    return answers.as_json({"removed": await gateway.purge(topic)})
