"""Count the jobs of a namespace, repeatedly.

Counts of queues are current and come from the broker over AMQP. The list of topics and the number
of reserved jobs are not available over AMQP. They come from the management API, and are some
seconds old.
"""

from collections.abc import Container, Iterable, Sequence

from rabbitdelay.core.administration import counts
from rabbitdelay.core.administration.counts import (
    HoldCount,
    Listing,
    QueueCount,
    Statistics,
    TopicCounts,
)
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.ladder import Hop
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.administration.management_queries import ManagementQueries
from rabbitdelay.engine.administration.queue_queries import QueueQueries
from rabbitdelay.engine.flow import Flow
from rabbitdelay.errors import ManagementUnreachable
from rabbitdelay.system_time import TimeSource

UNREACHABLE_SECONDS = 30.0
"""Seconds before a management API that failed is queried again. A failure may take 5 s."""
MISSING_AT_ONCE = 16
"""Number of missing hold queues that are queried again in each count."""


def count_topics(
    queries: QueueQueries,
    topology: Topology,
    topics: Iterable[str],
    listing: Listing,
    paused: Container[str] | None = None,
) -> Flow[dict[str, TopicCounts | None]]:
    """Count the jobs of these topics; None for a topic that does not exist."""
    names = list(topics)
    queues = [queue for name in names for queue in _queues(topology, name)]
    found = yield from queries.count_all(queues)
    return {name: _topic(topology, name, found, listing, paused) for name in names}


def _queues(topology: Topology, topic: str) -> tuple[str, str]:
    return topology.ready_queue(topic), topology.buried_queue(topic)


def _topic(
    topology: Topology,
    topic: str,
    found: dict[str, QueueCount | None],
    listing: Listing,
    paused: Container[str] | None,
) -> TopicCounts | None:
    ready, buried = (found[queue] for queue in _queues(topology, topic))
    return counts.of_topic(topology, topic, ready, buried, listing=listing, paused=paused)


class JobCounter:
    """Counts the jobs of one namespace, and remembers which hold queues are missing."""

    def __init__(self, topology: Topology, management: ManagementQueries) -> None:
        self._topology = topology
        self._management = management
        self._missing: tuple[Hop, ...] = ()
        """Hold queues that were missing, queried again in turn.

        Each query for a missing queue costs a channel and a line in the broker's log. Querying all
        208 took 0.4 s on loopback.
        """
        self._error: str | None = None
        self._error_until = 0.0

    def count(
        self,
        queries: QueueQueries,
        topics: Sequence[str],
        paused: Container[str] | None,
        *,
        delayed: bool,
    ) -> Flow[Statistics]:
        """Count the jobs of these topics, or of all, and optionally the delayed jobs."""
        listing = yield from self._list(queries.monotonic)
        known = listing or Listing()
        found = yield from count_topics(
            queries, self._topology, topics or known.topics, known, paused
        )
        unrouted = yield from queries.count(self._topology.unrouted)
        holds = (yield from self._count_holds(queries, listing)) if delayed else []
        return Statistics(
            tuple(count for count in found.values() if count is not None),
            tuple(topic for topic in topics if found[topic] is None),
            tuple(holds),
            unrouted.ready if unrouted else 0,
            sum(listing.dead_lettering.values()) if listing else None,
            None if listing else self._error,
        )

    def _list(self, monotonic: TimeSource) -> Flow[Listing | None]:
        """Query the management API, unless it failed recently."""
        if monotonic() < self._error_until:
            return None
        try:
            return (yield from self._management.listing(self._topology))
        except ManagementUnreachable as error:
            self._error = str(error)
            self._error_until = monotonic() + UNREACHABLE_SECONDS
            return None

    def _count_holds(self, queries: QueueQueries, listing: Listing | None) -> Flow[list[HoldCount]]:
        """Count the jobs in the listed hold queues, or in all if there is no listing."""
        waiting = self._missing[MISSING_AT_ONCE:]
        hops = listing.hops if listing else [hop for hop in ladder.EVERY_HOP if hop not in waiting]
        queues = {hop: self._topology.hold_queue(hop) for hop in hops}
        found = yield from queries.count_all(queues.values())
        if listing is None:
            missing = (hop for hop, queue in queues.items() if found[queue] is None)
            self._missing = (*waiting, *missing)
        holds = [
            HoldCount(hop, count.ready) for hop, queue in queues.items() if (count := found[queue])
        ]
        return sorted((one for one in holds if one.jobs), key=lambda one: one.hop.hold_ms)
