"""Counts of jobs per topic and state, from the broker's queues and its management API."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rabbitdelay.core.administration.verification import existing
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.ladder import Hop
from rabbitdelay.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class QueueCount:
    """Number of ready messages and of consumers of a queue."""

    ready: int
    consumers: int


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """Number of jobs of one topic, by state."""

    topic: str
    ready: int | None
    """Number of ready jobs; None if the ready queue is missing."""
    reserved: int | None
    """Number of reserved jobs; None if the management API did not report it."""
    buried: int | None
    """Number of buried jobs; None if the buried queue is missing."""
    consumers: int
    paused: bool | None = None
    """Whether the topic is paused; None if the log of deletes was not read."""


@dataclass(frozen=True, slots=True)
class HoldCount:
    """Number of jobs, of all topics, that wait in one hold queue."""

    hop: Hop
    jobs: int

    @property
    def due_within_ms(self) -> int:
        """Longest remaining wait of any of the jobs, in milliseconds, with the hops that follow.

        The hops below a level add up to less than one of its units.
        """
        is_last = self.hop.level is ladder.LEVELS[-1]
        return self.hop.hold_ms + (0 if is_last else self.hop.level.unit_ms)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The jobs of a namespace at one moment."""

    topics: tuple[TopicCounts, ...]
    missing: tuple[str, ...]
    """The requested topics that do not exist."""
    delayed: tuple[HoldCount, ...]
    """The hold queues that are not empty, the shortest first."""
    unrouted: int
    dead_lettering: int | None = None
    """Number of jobs that the broker was moving from one queue to the next, some seconds ago.

    None if the management API did not answer, because AMQP does not report the number.
    """
    management_error: str | None = None
    """Why the management API did not answer; None if it did."""
    deletes_error: str | None = None
    """Why the log of deletes was not read, so that paused topics are unknown; None if it was."""

    @property
    def delayed_jobs(self) -> int:
        """Number of delayed jobs."""
        return sum(count.jobs for count in self.delayed)


@dataclass(frozen=True, slots=True)
class Listing:
    """The parts of the management API's list of queues that concern one namespace."""

    topics: tuple[str, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Number of unacknowledged messages, by queue."""
    hops: tuple[Hop, ...] = ()
    """The hops whose hold queues exist."""
    dead_lettering: Mapping[str, int] = field(default_factory=dict)
    """Number of jobs that left a queue and have not reached the next one, by queue, if not 0."""


def read_listing(topology: Topology, queues: Iterable[Mapping[str, Any]]) -> Listing:
    """Read the rows of a namespace's queues from the management API."""
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
    paused: Container[str] | None = None,
) -> TopicCounts | None:
    """Return the counts of a topic, or None if it has no queue."""
    if ready is None and buried is None:
        return None
    return TopicCounts(
        topic,
        ready.ready if ready else None,
        listing.reserved.get(topology.ready_queue(topic)),
        buried.ready if buried else None,
        ready.consumers if ready else 0,
        None if paused is None else topic in paused,
    )
