"""The overview: how many jobs of each topic are where.

The counts are the broker's own at this moment, over AMQP. What AMQP cannot tell, which topics
there are and how many jobs are reserved, comes from the management API, some seconds old.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rabbitdelay.core.topology import Topology
from rabbitdelay.core.verification import existing
from rabbitdelay.sync.administration import Administrator


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


@dataclass(frozen=True, slots=True)
class Listing:
    """What the management API says of a namespace's queues."""

    topics: tuple[str, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)
    """By queue."""


def read_listing(topology: Topology, queues: Iterable[Mapping[str, Any]]) -> Listing:
    """Take what we need from the API's answer."""
    counts = {queue["name"]: queue.get("messages_unacknowledged") for queue in queues}
    _, topics = existing(topology, counts)
    reserved = {name: count for name, count in counts.items() if count is not None}
    return Listing(tuple(topics), reserved)


def count_topic(
    administrator: Administrator, topology: Topology, topic: str, listing: Listing
) -> TopicCounts | None:
    """Count the jobs of a topic, or None when there is no such topic."""
    ready_queue = topology.ready_queue(topic)
    ready = administrator.count(ready_queue)
    buried = administrator.count(topology.buried_queue(topic))
    if ready is None and buried is None:
        return None
    return TopicCounts(
        topic,
        ready.ready if ready else None,
        listing.reserved.get(ready_queue),
        buried.ready if buried else None,
        ready.consumers if ready else 0,
    )
