"""The overview: how many jobs of each topic are where, and how many are delayed.

The counts are the broker's own at this moment, over AMQP. What AMQP cannot tell, which topics
there are and how many jobs are reserved, comes from the management API, some seconds old.
"""

import time
from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.counts import Listing, TopicCounts, of_topic, read_listing
from rabbitdelay.core.topology.ladder import Hop
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.topology.management_api import Management
from rabbitdelay.errors import ManagementUnreachable
from rabbitdelay.sync.administration import Administrator

LISTING_SECONDS = 2.0
"""How long a listing holds: what it counts is up to 5 s old anyway."""
UNREACHABLE_SECONDS = 30.0
"""How long a management API that did not answer is left alone: it may take 5 s not to answer."""
MISSING_AT_ONCE = 16
"""How many hold queues that were missing are asked for again in one look."""


@dataclass(frozen=True, slots=True)
class HoldCount:
    """How many jobs, of all topics, wait in one hold queue."""

    hop: Hop
    jobs: int

    @property
    def due_within_ms(self) -> int:
        """The longest that one of them may still have to wait, hops that follow included.

        The hops below a level add up to less than one of its units.
        """
        is_last = self.hop.level is ladder.LEVELS[-1]
        return self.hop.hold_ms + (0 if is_last else self.hop.level.unit_ms)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The jobs of a namespace at one moment."""

    topics: tuple[TopicCounts, ...]
    missing: tuple[str, ...]
    """The topics that were named and are not there."""
    delayed: tuple[HoldCount, ...]
    """The hold queues that are not empty, the shortest first."""
    unrouted: int
    unlisted: str | None
    """Why the management API has not answered; None when it has."""
    dead_lettering: int | None = None
    """Jobs that the broker is moving from one queue to the next, some seconds ago.

    None when the management API has not answered: AMQP does not count them.
    """

    @property
    def delayed_jobs(self) -> int:
        """How many jobs are delayed."""
        return sum(count.jobs for count in self.delayed)


def count_topic(
    administrator: Administrator,
    topology: Topology,
    topic: str,
    listing: Listing,
    paused: Container[str] = (),
) -> TopicCounts | None:
    """Count the jobs of a topic, or None when there is no such topic."""
    ready = administrator.count(topology.ready_queue(topic))
    buried = administrator.count(topology.buried_queue(topic))
    return of_topic(topology, topic, ready, buried, listing=listing, paused=paused)


class HoldCounter:
    """Counts what is in the hold queues, again and again.

    Without a listing it asks for each of them. To be told that one is missing costs a channel
    (all 208 took 0.4 s on loopback): those are remembered, and asked for again by turns.
    """

    def __init__(self, administrator: Administrator, topology: Topology) -> None:
        self._administrator = administrator
        self._topology = topology
        self._there = set(ladder.EVERY_HOP)
        self._missing: deque[Hop] = deque()

    def count(self, listed: Iterable[Hop] | None) -> list[HoldCount]:
        """Count those that are listed, or all when there is no listing; the shortest first."""
        hops = self._ask_for() if listed is None else listed
        counts = [HoldCount(hop, self._jobs(hop)) for hop in hops]
        return sorted((one for one in counts if one.jobs), key=lambda one: one.hop.hold_ms)

    def _ask_for(self) -> set[Hop]:
        turns = min(MISSING_AT_ONCE, len(self._missing))
        self._there.update(self._missing.popleft() for _ in range(turns))
        return set(self._there)

    def _jobs(self, hop: Hop) -> int:
        counted = self._administrator.count(self._topology.hold_queue(hop))
        if counted is None and hop in self._there:
            self._there.remove(hop)
            self._missing.append(hop)
        return counted.ready if counted else 0


class Observer:
    """Looks at a namespace again and again, over one connection."""

    def __init__(
        self,
        administrator: Administrator,
        api: Management,
        topology: Topology,
        names: Sequence[str] = (),
    ) -> None:
        self._administrator = administrator
        self._management = api
        self._topology = topology
        self._names = names
        self._holds = HoldCounter(administrator, topology)
        self._listing: Listing | None = None
        self._unlisted: str | None = None
        self._listed_until = 0.0

    def look(self) -> Statistics:
        """Count everything."""
        self._list()
        listing = self._listing or Listing()
        counts = {
            topic: count_topic(self._administrator, self._topology, topic, listing)
            for topic in self._names or listing.topics
        }
        unrouted = self._administrator.count(self._topology.unrouted)
        return Statistics(
            tuple(count for count in counts.values() if count is not None),
            tuple(topic for topic in self._names if counts[topic] is None),
            tuple(self._holds.count(listing.hops if self._listing else None)),
            unrouted.ready if unrouted else 0,
            self._unlisted,
            sum(self._listing.dead_lettering.values()) if self._listing else None,
        )

    def _list(self) -> None:
        """Ask the management API, unless its last answer still holds."""
        if time.monotonic() < self._listed_until:
            return
        try:
            queues = self._management.queues(self._topology.prefix)
            self._listing, self._unlisted = read_listing(self._topology, queues), None
        except ManagementUnreachable as error:
            self._listing, self._unlisted = None, str(error)
        seconds = UNREACHABLE_SECONDS if self._listing is None else LISTING_SECONDS
        self._listed_until = time.monotonic() + seconds
