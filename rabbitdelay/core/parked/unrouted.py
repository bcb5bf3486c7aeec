"""Unrouted jobs: parsing the messages in `unrouted`, and finding their route onward.

This file owns two rules:

1. A job continues with the rest of its delay, never with less: it may be late, and is never early.
   The rest is the part of its routing key that the broker has not measured yet. No clock is used,
   because one that is ahead would make the job early. A job is late by the time that it spent in
   `unrouted` before its last hold queue.
2. A message that cannot be parsed has no route onward. It stays in the queue for a person.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rabbitdelay.core.jobs import validation
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.parked_job import ParkedJob
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import InvalidJob


@dataclass(frozen=True, slots=True, repr=False)
class UnroutedJob(ParkedJob):
    """A job that could not be routed, because a queue on its route was missing."""

    exchange: str
    """The exchange that could not route the message."""
    routing_key: str
    why: str
    """Description of what was missing."""
    topic: str | None = None
    """The job's topic; None if the message cannot be parsed."""
    to_bury: bool = False
    """Whether the job was on its way to its buried queue rather than its ready queue."""
    hops_left: tuple[ladder.Hop, ...] = ()
    """The hold queues that the job has not passed yet."""

    def __repr__(self) -> str:
        return f"UnroutedJob(topic={self.topic!r}, id={self.id!r}, why={self.why!r})"

    @property
    def remaining_ms(self) -> int:
        """The delay to republish the job with, in milliseconds: the part it has not waited yet."""
        return sum(hop.hold_ms for hop in self.hops_left)


@dataclass(frozen=True, slots=True)
class Way:
    """The exchange and routing key to publish a job to, and the parts that must exist for it."""

    exchange: str
    routing_key: str
    parts: tuple[Part, ...]


def read(topology: Topology, exchange: str, routing_key: str, message: Message) -> UnroutedJob:
    """Parse a message found in `unrouted`."""
    if exchange == topology.buried_exchange and _is_topic(routing_key):
        return UnroutedJob(
            message, exchange, routing_key, "no buried queue", routing_key, to_bury=True
        )
    parsed = ladder.parse_routing_key(routing_key)
    if parsed is None or not _is_topic(parsed[1]):
        return UnroutedJob(message, exchange, routing_key, "not a routing key of ours")
    digits, topic = parsed
    passed = _passed_queues(message.headers)
    left = tuple(hop for hop in ladder.hops(digits) if topology.hold_queue(hop) not in passed)
    why = f"no hold queue {left[0].label}" if left else "no ready queue"
    return UnroutedJob(message, exchange, routing_key, why, topic, hops_left=left)


def way_on(topology: Topology, unrouted: UnroutedJob) -> Way | None:
    """Return the route onward; None if there is none."""
    topic = unrouted.topic
    if topic is None:
        return None
    if unrouted.to_bury:
        return Way(topology.buried_exchange, topic, topology.topic(topic))
    try:
        digits = ladder.to_digits(unrouted.remaining_ms)
    except InvalidJob:
        return None  # the digits add up to more than nine years
    key = ladder.routing_key(digits, topic)
    return Way(topology.entrance(digits), key, topology.path(digits, topic))


def missing_queue(topology: Topology, unrouted: UnroutedJob) -> str:
    """Return the name of the queue that did not exist."""
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
    """Return the queues that dead-lettered the message, by the broker's record."""
    deaths = headers.get("x-death")
    entries = deaths if isinstance(deaths, list) else []
    return {str(entry.get("queue")) for entry in entries if isinstance(entry, Mapping)}
