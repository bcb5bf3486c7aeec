"""The `unrouted` queue: looking into it, sending its jobs on, and dropping them.

Two rules this file owns:

1. A job is acked here only after the broker has confirmed its copy in queues that have settled.
   A kill in between leaves it twice, and never not at all.
2. One pass takes no more messages than the queue had when it began: what it gives back, and what
   comes back because it could not be routed again, waits for the next one.
"""

import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from pika import BlockingConnection
from pika import exceptions as pika_errors
from pika.spec import BasicProperties

from rabbitdelay.core import unrouted
from rabbitdelay.core.envelope import Message, fresh_headers
from rabbitdelay.core.setup import SETTLE_SECONDS, setup
from rabbitdelay.core.topology import Topology
from rabbitdelay.core.unrouted import Chooser, Unrouted, Way
from rabbitdelay.errors import TopologyMissing
from rabbitdelay.sync.administration import Administrator

PERSISTENT = 2
GIVE_BACK_SECONDS = 2.0
"""How long to wait at most; somebody else may have taken them."""
OnTried = Callable[[Unrouted, bool], None]


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of the jobs that were to be sent on."""

    sent: int
    stayed: int
    """How many cannot be understood, or were refused by the broker."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A message, held unacked."""

    tag: int
    unrouted: Unrouted
    properties: BasicProperties


class UnroutedQueue:
    """The queue of what could not be routed, over one connection."""

    def __init__(
        self,
        connection: BlockingConnection,
        topology: Topology,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._settle_seconds = settle_seconds
        self._connection = connection
        self._topology = topology
        self._administrator = Administrator(connection)
        self._channel = connection.channel()
        self._known: set[str] = set()
        self._safe_at = 0.0
        self._sent: list[int] = []
        self._held = 0

    def count(self) -> int:
        """How many messages are in it."""
        counted = self._administrator.count(self._topology.unrouted)
        if counted is None:
            raise TopologyMissing(
                f"there is no queue {self._topology.unrouted}: nothing was ever put in namespace "
                f"{self._topology.namespace} on this broker"
            )
        return counted.ready

    def look(self, choice: Chooser, *, limit: int) -> list[Unrouted]:
        """Return the first of them, and leave them where they are."""
        found = [taken.unrouted for taken in self._take(choice, limit)]
        self._give_back()
        return found

    def count_chosen(self, choice: Chooser) -> int:
        """How many of them are meant; they stay where they are."""
        chosen = sum(1 for _ in self._take(choice, None))
        self._give_back()
        return chosen

    def retry(
        self, choice: Chooser, *, limit: int | None = None, on_tried: OnTried | None = None
    ) -> Retried:
        """Send them on with the rest of their delay; topics that are missing are made.

        `on_tried` is told of each, and whether it was sent on.
        """
        self._channel.confirm_delivery()
        results = {True: 0, False: 0}
        for taken in self._take(choice, limit):
            sent = self._send_on(taken)
            results[sent] += 1
            if on_tried is not None:
                on_tried(taken.unrouted, sent)
        self._connection.sleep(max(0.0, self._safe_at - time.monotonic()))
        self._ack_settled()
        self._give_back()
        return Retried(sent=results[True], stayed=results[False])

    def drop(self, choice: Chooser, *, limit: int | None = None) -> int:
        """Remove them for good; return how many."""
        dropped = 0
        for taken in self._take(choice, limit):
            self._ack(taken.tag)
            dropped += 1
        self._give_back()
        return dropped

    # Taking and giving back

    def _take(self, choice: Chooser, limit: int | None) -> Iterator[_Taken]:
        """Hand out, unacked, those that are meant; the others are held until `_give_back`."""
        taken = 0
        for _ in range(self.count()):
            if taken == limit:
                return
            method, properties, body = self._channel.basic_get(self._topology.unrouted)
            if method is None or properties is None:
                return
            self._held += 1
            found = self._read(method, properties, body)
            if choice.takes(found.unrouted):
                taken += 1
                yield found

    def _read(self, method: Any, properties: BasicProperties, body: Any) -> _Taken:  # noqa: ANN401
        message = Message(
            body or b"",
            properties.headers or {},
            properties.message_id,
            properties.content_type,
            properties.timestamp,
        )
        found = unrouted.read(self._topology, method.exchange, method.routing_key, message)
        return _Taken(method.delivery_tag, found, properties)

    def _give_back(self) -> None:
        """Give back all that is still unacked: nack, as a reject counts as a delivery on 4.3.

        The queue takes a moment to have them again, and whoever looks next must find them.
        """
        self._channel.basic_nack(0, multiple=True, requeue=True)
        deadline = time.monotonic() + GIVE_BACK_SECONDS
        while self.count() < self._held and time.monotonic() < deadline:
            self._connection.sleep(0.01)
        self._held = 0

    # Sending on

    def _send_on(self, taken: _Taken) -> bool:
        """Publish a fresh copy; say whether the broker has taken it."""
        way = unrouted.way_on(self._topology, taken.unrouted, time.time_ns() // 1_000_000)
        if way is None:
            return False
        self._prepare(way)
        body, properties = taken.unrouted.message.body, _fresh(taken.properties)
        try:
            self._channel.basic_publish(
                way.exchange, way.routing_key, body, properties, mandatory=True
            )
        except (pika_errors.NackError, pika_errors.UnroutableError):
            return False
        self._sent.append(taken.tag)
        self._ack_settled()
        return True

    def _prepare(self, way: Way) -> None:
        parts = [part for part in way.parts if part.queue.name not in self._known]
        if not parts:
            return
        conversation = setup(self._topology, parts, with_base=not self._known, may_declare=True)
        if self._administrator.run(conversation):
            self._safe_at = time.monotonic() + self._settle_seconds
        self._known.update(part.queue.name for part in parts)

    def _ack_settled(self) -> None:
        """Ack what was sent, unless it went through a queue that has yet to settle."""
        if time.monotonic() < self._safe_at:
            return
        for tag in self._sent:
            self._ack(tag)
        self._sent.clear()

    def _ack(self, tag: int) -> None:
        self._channel.basic_ack(tag)
        self._held -= 1


def _fresh(properties: BasicProperties) -> BasicProperties:
    """The same properties, as of a message that was never published before."""
    fresh = copy(properties)
    fresh.headers = fresh_headers(properties.headers or {})
    fresh.delivery_mode = PERSISTENT
    fresh.expiration = None  # the shorter of two TTLs wins: it would come early
    fresh.user_id = None  # the broker takes only the name of who is logged in
    return fresh
