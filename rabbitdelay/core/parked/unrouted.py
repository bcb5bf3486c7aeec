"""Unrouted jobs: what the messages in `unrouted` are, why they are there, and where they go on.

Two rules this file owns:

1. A job goes on with the rest of its delay, never with less: it may be late and is never early. The
   rest is what its routing key says it has not waited yet, because the broker measured what it has.
   No clock is asked: one that is ahead would make the job early. Time that a job is parked before
   its last hold queue makes it late.
2. What cannot be understood has no way on. It stays where it is, for a person to look at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rabbitdelay.core.jobs import validation
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import InvalidJob


@dataclass(frozen=True, slots=True)
class Unrouted:
    """A message in `unrouted`, understood as far as it can be."""

    message: Message
    exchange: str
    """Where it could not be routed."""
    routing_key: str
    why: str
    """What was missing, in words."""
    topic: str | None = None
    """None when it cannot be understood."""
    to_bury: bool = False
    """Whether it was on its way to its topic's buried queue, not to its ready queue."""
    hops_left: tuple[ladder.Hop, ...] = ()
    """The hold queues it has not been through."""

    @property
    def id(self) -> str | None:
        """Its id, when it has one."""
        return self.message.message_id

    @property
    def due_ms(self) -> int | None:
        """When it is due, in milliseconds since 1970, when its putter has said so."""
        due_ms = self.message.headers.get("rd-due")
        return due_ms if isinstance(due_ms, int) and due_ms >= 0 else None

    @property
    def remaining_ms(self) -> int:
        """The delay to send it on with: all that it has not waited yet."""
        return sum(hop.hold_ms for hop in self.hops_left)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of them: all, or those of a topic, or with an id."""

    topic: str | None = None
    id: str | None = None

    def takes(self, unrouted: Unrouted) -> bool:
        """Whether it is one of them."""
        return self.topic in (None, unrouted.topic) and self.id in (None, unrouted.id)


@dataclass(frozen=True, slots=True)
class Way:
    """Where a job is published to go on, and what must be there for it."""

    exchange: str
    routing_key: str
    parts: tuple[Part, ...]


def read(topology: Topology, exchange: str, routing_key: str, message: Message) -> Unrouted:
    """Understand a message as it was found in `unrouted`."""
    if exchange == topology.buried_exchange and _is_topic(routing_key):
        return Unrouted(
            message, exchange, routing_key, "no buried queue", routing_key, to_bury=True
        )
    parsed = ladder.parse_routing_key(routing_key)
    if parsed is None or not _is_topic(parsed[1]):
        return Unrouted(message, exchange, routing_key, "not a routing key of ours")
    digits, topic = parsed
    passed = _passed_queues(message.headers)
    left = tuple(hop for hop in ladder.hops(digits) if topology.hold_queue(hop) not in passed)
    why = f"no hold queue {left[0].label}" if left else "no ready queue"
    return Unrouted(message, exchange, routing_key, why, topic, hops_left=left)


def way_on(topology: Topology, unrouted: Unrouted) -> Way | None:
    """Return where it goes on; None when it cannot be understood."""
    topic = unrouted.topic
    if topic is None:
        return None
    if unrouted.to_bury:
        return Way(topology.buried_exchange, topic, topology.topic(topic))
    try:
        digits = ladder.to_digits(unrouted.remaining_ms)
    except InvalidJob:
        return None  # its routing key says more than nine years
    key = ladder.routing_key(digits, topic)
    return Way(topology.entrance(digits), key, topology.path(digits, topic))


def missing_queue(topology: Topology, unrouted: Unrouted) -> str:
    """Return the name of the queue that a message did not find."""
    if unrouted.to_bury:
        return topology.buried_queue(unrouted.topic or "")
    if unrouted.hops_left:
        return topology.hold_queue(unrouted.hops_left[0])
    return topology.ready_queue(unrouted.topic or "")


def _is_topic(text: str) -> bool:
    try:
        validation.check_topic(text)
    except InvalidJob:
        return False
    return True


def _passed_queues(headers: Mapping[str, Any]) -> set[str]:
    """The queues it was dead-lettered from, by the broker's own record."""
    deaths = headers.get("x-death")
    entries = deaths if isinstance(deaths, list) else []
    return {str(entry.get("queue")) for entry in entries if isinstance(entry, Mapping)}
