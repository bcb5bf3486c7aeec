"""Parked messages: a queue that people look into, and what they do with what is in it.

Three rules this file owns:

1. A message is acked here only after the broker has confirmed its copy in queues that survive a
   crash. A kill in between leaves it twice, and never not at all.
2. One pass takes no more messages than the queue had when it began: what it gives back, and what
   comes back after it was sent on, waits for the next one.
3. What was taken and not acked is given back: looking changes nothing. Only what is dead, because
   it was deleted, is removed by whoever comes across it.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pika import BlockingConnection
from pika import exceptions as pika_errors
from pika.spec import BasicProperties

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.unrouted import Way
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.setup import setup
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import TopologyMissing
from rabbitdelay.sync.administration import Administrator

PERSISTENT = 2
BATCH = 100
"""How many are received at once: their bodies are in memory, and each may have a megabyte."""
QUIET_SECONDS = 2.0
"""How long to wait at most for a message that was counted."""
GIVE_BACK_SECONDS = 2.0
"""How long to wait at most; somebody else may have taken them."""

Found = TypeVar("Found")
Found_contra = TypeVar("Found_contra", contravariant=True)
OnTried = Callable[[Found, bool], None]


class Chooser(Protocol[Found_contra]):
    """Which of them."""

    def takes(self, found: Found_contra, /) -> bool:
        """Whether it is one of them."""


@dataclass(frozen=True, slots=True)
class SentOn:
    """What became of the messages that were to be sent on."""

    sent: int
    stayed: int
    """How many have no way on, or were refused by the broker."""
    dropped_dead: int = 0
    """How many were removed, because they are deleted."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The message that one is sent on as: where to, and its headers. All else stays the same."""

    way: Way
    headers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Taken(Generic[Found]):
    """A message, held unacked."""

    tag: int
    found: Found
    body: bytes
    properties: BasicProperties


class ParkedQueue(ABC, Generic[Found]):
    """One queue of parked messages, over one connection."""

    def __init__(
        self,
        connection: BlockingConnection,
        topology: Topology,
        name: str,
        settle_seconds: float | None = None,
        *,
        may_declare: bool = True,
    ) -> None:
        self._may_declare = may_declare
        self._connection = connection
        self._topology = topology
        self._name = name
        self._administrator = Administrator(connection, settle_seconds=settle_seconds)
        self._channel = connection.channel()
        self._known: set[str] = set()
        self._safe_at = 0.0
        self._sent: list[int] = []
        self._held = 0
        self.dropped_dead = 0
        """How many were removed in passing, because they are deleted."""

    # What each kind of queue says for itself

    @abstractmethod
    def _read(self, exchange: str, routing_key: str, message: Message) -> Found:
        """Understand a message as it was found."""

    @abstractmethod
    def _copy(self, found: Found, now_ms: int) -> Copy | None:
        """What it is sent on as; None when it has no way on."""

    def _is_dead(self, _found: Found) -> bool:
        """Whether it is deleted, and must neither be shown nor sent on."""
        return False

    @abstractmethod
    def _why_missing(self) -> str:
        """What it means when there is no such queue."""

    # What people do

    def is_there(self) -> bool:
        """Whether there is such a queue."""
        return self._administrator.count(self._name) is not None

    def count(self) -> int:
        """How many messages are in it."""
        counted = self._administrator.count(self._name)
        if counted is None:
            raise TopologyMissing(f"there is no queue {self._name}: {self._why_missing()}")
        return counted.ready

    def look(self, choice: Chooser[Found], *, limit: int | None = None) -> list[Found]:
        """Return the first of them, and leave them where they are."""
        found = [taken.found for taken in self._take(choice, limit)]
        self._give_back()
        return found

    def count_chosen(self, choice: Chooser[Found]) -> int:
        """How many of them are meant; they stay where they are."""
        chosen = sum(1 for _ in self._take(choice, None))
        self._give_back()
        return chosen

    def drop(self, choice: Chooser[Found], *, limit: int | None = None) -> int:
        """Remove them for good; return how many."""
        dropped = 0
        for taken in self._take(choice, limit):
            self._ack(taken.tag)
            dropped += 1
        self._give_back()
        return dropped

    def _send_on(
        self, choice: Chooser[Found], limit: int | None, on_tried: OnTried[Found] | None
    ) -> SentOn:
        """Send them on; `on_tried` is told of each, and whether it was sent."""
        self._channel.confirm_delivery()
        results = {True: 0, False: 0}
        for taken in self._take(choice, limit):
            sent = self._send(taken)
            results[sent] += 1
            if on_tried is not None:
                on_tried(taken.found, sent)
        self._connection.sleep(max(0.0, self._safe_at - time.monotonic()))
        self._ack_settled()
        self._give_back()
        return SentOn(results[True], results[False], self.dropped_dead)

    # Taking and giving back

    def _take(self, choice: Chooser[Found], limit: int | None) -> Iterator[_Taken[Found]]:
        """Hand out, unacked, those that are meant; the others are held until `_give_back`."""
        chosen, left = 0, self.count()
        while left and chosen != limit:
            asked = min(left, BATCH)
            batch = self._receive(asked)
            left = left - asked if len(batch) == asked else 0
            for taken in batch:
                if chosen != limit and choice.takes(taken.found) and not self._drops_dead(taken):
                    chosen += 1
                    yield taken

    def _drops_dead(self, taken: _Taken[Found]) -> bool:
        if not self._is_dead(taken.found):
            return False
        self._ack(taken.tag)
        self.dropped_dead += 1
        return True

    def _receive(self, count: int) -> list[_Taken[Found]]:
        """Have the broker send so many: to ask for each took ten times as long, and more.

        Nothing is acked before the consumer is cancelled, so its prefetch ends the batch.
        """
        self._channel.basic_qos(prefetch_count=count)
        deliveries = self._channel.consume(self._name, inactivity_timeout=QUIET_SECONDS)
        batch: list[_Taken[Found]] = []
        for method, properties, body in deliveries:
            if method is None or properties is None:
                break  # somebody else has taken the others
            batch.append(self._taken(method, properties, body or b""))
            if len(batch) == count:
                break
        self._held += len(batch)
        self._channel.cancel()
        return batch

    def _taken(self, method: Any, properties: BasicProperties, body: bytes) -> _Taken[Found]:  # noqa: ANN401 - pika has no types for it
        message = _message(properties, body)
        found = self._read(method.exchange, method.routing_key, message)
        return _Taken(method.delivery_tag, found, body, properties)

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

    def _send(self, taken: _Taken[Found]) -> bool:
        """Publish a fresh copy; say whether the broker has taken it."""
        copied = self._copy(taken.found, time.time_ns() // 1_000_000)
        if copied is None:
            return False
        way, properties = copied.way, _fresh(taken.properties, copied.headers)
        self._prepare(way)
        try:
            self._channel.basic_publish(
                way.exchange, way.routing_key, taken.body, properties, mandatory=True
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
        if self._set_up(parts):
            self._safe_at = time.monotonic() + self._administrator.settle_seconds
        self._known.update(part.queue.name for part in parts)

    def _set_up(self, parts: list[Part]) -> bool:
        return self._administrator.set_up(
            setup(
                self._topology,
                parts,
                with_base=not self._known,
                may_declare=self._may_declare,
                flush=self._administrator.flush_name(),
            )
        )

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


def _message(properties: BasicProperties, body: bytes) -> Message:
    return Message(
        body,
        properties.headers or {},
        properties.message_id,
        properties.content_type,
        properties.timestamp,
        properties.reply_to,
        properties.correlation_id,
        properties.content_encoding,
        properties.priority,
        properties.type,
        properties.app_id,
    )


def _fresh(properties: BasicProperties, headers: Mapping[str, Any]) -> BasicProperties:
    """The same properties with these headers, as of a message that was never published before."""
    fresh = copy(properties)
    fresh.headers = dict(headers)
    fresh.delivery_mode = PERSISTENT
    fresh.expiration = None  # the shorter of two TTLs wins: it would come early
    fresh.user_id = None  # the broker takes only the name of who is logged in
    return fresh
