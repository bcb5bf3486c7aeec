"""Counts: how many jobs of each topic are where, as the broker and its management API say."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rabbitdelay.core.topology.ladder import Hop
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.topology.verification import existing


@dataclass(frozen=True, slots=True)
class QueueCount:
    """How many messages wait in a queue, and how many consumers take from it."""

    ready: int
    consumers: int


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """How many jobs of one topic are where."""

    topic: str
    ready: int | None
    """None when its ready queue is missing."""
    reserved: int | None
    """None when the management API has not said."""
    buried: int | None
    """None when its buried queue is missing."""
    consumers: int
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What the management API says of a namespace's queues."""

    topics: tuple[str, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)
    """By queue."""
    hops: tuple[Hop, ...] = ()
    """Of the hold queues that there are."""
    dead_lettering: Mapping[str, int] = field(default_factory=dict)
    """Jobs that left a queue and have not reached the next one, by queue, where there are any."""


def read_listing(topology: Topology, queues: Iterable[Mapping[str, Any]]) -> Listing:
    """Take what we need from the API's answer."""
    rows = list(queues)
    counts = {queue["name"]: queue.get("messages_unacknowledged") for queue in rows}
    hops, topics = existing(topology, counts)
    reserved = {name: count for name, count in counts.items() if count is not None}
    moving = {queue["name"]: queue.get("messages_dlx") or 0 for queue in rows}
    dead_lettering = {name: count for name, count in moving.items() if count}
    return Listing(tuple(topics), reserved, tuple(hops), dead_lettering)


def of_topic(
    topology: Topology,
    topic: str,
    ready: QueueCount | None,
    buried: QueueCount | None,
    *,
    listing: Listing,
    paused: Container[str] = (),
) -> TopicCounts | None:
    """Return what is known of a topic, or None when it has no queue."""
    if ready is None and buried is None:
        return None
    return TopicCounts(
        topic,
        ready.ready if ready else None,
        listing.reserved.get(topology.ready_queue(topic)),
        buried.ready if buried else None,
        ready.consumers if ready else 0,
        topic in paused,
    )
