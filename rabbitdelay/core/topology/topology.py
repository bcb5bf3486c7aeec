"""The exchanges and queues of one namespace: their names, arguments and order of declaration.

::

    put ─► level y ─► level mo ─► … ─► level cs ─► ready ─► ready queue of the topic
             │  ▲        │  ▲             (exchanges; a digit 0 passes straight down)
             ▼  │        ▼  │
           hold queues of a level: one TTL each, dead-lettering to the next lower level

This file owns two rules:

1. The arguments of an existing queue never change. To change an argument, raise VERSION: it is part
   of the names, so that old and new queues exist side by side. Every job carries its due time and
   can be moved.
2. Every exchange that a job passes has an alternate exchange that leads to `unrouted`. Without it,
   the jobs of one deleted topic block a hold queue for all topics, because the broker's dead-letter
   worker has a window of 32 messages and retries every 180 s (see also NServiceBus.RabbitMQ issue
   1407).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Argument, Binding, Declaration, Exchange, Part, Queue
from rabbitdelay.errors import InvalidConfiguration

VERSION = 1
DELIVERY_LIMIT = 20
"""Maximum deliveries of a job whose consumers die while processing it; then the broker buries
it."""
UNLIMITED_DELIVERIES = 2_000_000_000
"""Delivery limit of queues whose messages are read and requeued. By default RabbitMQ 4 drops a
message after 20 reads."""
STABILISING_MS = 6_000
"""Lifetime of the announcement of a new queue, unless its creator retracts it."""
YOUNG_EXPIRES_MS = 3_000
"""Time during which a crash may lose the streams of a new namespace."""
FLUSH_EXPIRES_MS = ladder.MINUTE_MS
"""Lifetime of a flush queue whose creator died before deleting it."""
ALL_NODES = 1_000
"""More replicas than any cluster has nodes, so that RabbitMQ places one on each node."""

RESPONSE_TTL_MS = 24 * ladder.HOUR_MS
MAX_RESPONSES = 100_000
REPLY_QUEUE_EXPIRES_MS = ladder.HOUR_MS
"""Time by which a reply queue outlives its client."""

MAILBOX_TTL_MS = 10 * ladder.SECOND_MS
"""Time after which a message between clients is worthless, because its sender waits no longer."""
MAX_IN_MAILBOX = 10_000

LOG_SEGMENT_BYTES = 16 * 1024 * 1024
"""A stream drops only whole segments, so retention works only if segments are small."""
SNAPSHOT_AGE_MS = ladder.HOUR_MS
"""Minimum retention of a snapshot. The newest one stays until a newer one replaces it."""
RETENTION_MARGIN_MS = 2 * ladder.DAY_MS
"""Retention of the log beyond the longest delay, because a due job may wait for a consumer."""

QueueType = Literal["quorum", "classic"]

_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Topology:
    """The names and declarations of one namespace."""

    namespace: str = "rabbitdelay"
    queue_type: QueueType = "quorum"
    max_delay_ms: int = ladder.MAX_DELAY_MS
    """Longest delay that may be put, in milliseconds; deletes are kept for that long."""

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise InvalidConfiguration(
                f"namespace {self.namespace!r} must be 1 to 40 characters of A-Z a-z 0-9 _ - "
                "(no dots)"
            )
        if self.queue_type not in ("quorum", "classic"):
            raise InvalidConfiguration(
                f"queue type {self.queue_type!r} must be 'quorum' or 'classic'"
            )

    # Names

    @property
    def prefix(self) -> str:
        """Prefix of every name of this namespace and version."""
        return f"{self.namespace}.v{VERSION}."

    @property
    def ready_exchange(self) -> str:
        """Exchange that routes due jobs by topic."""
        return f"{self.prefix}ready"

    @property
    def buried_exchange(self) -> str:
        """Exchange that routes buried jobs by topic."""
        return f"{self.prefix}buried"

    @property
    def unrouted(self) -> str:
        """Name of the exchange and the queue for messages that could not be routed."""
        return f"{self.prefix}unrouted"

    @property
    def stabilising(self) -> str:
        """Name of the exchange and the queue of announcements, one per new queue.

        The name on the broker is older than the word: clients of all versions share the queue.
        """
        return f"{self.prefix}settling"

    @property
    def making(self) -> Queue:
        """Queue that a client consumes while it creates other queues.

        It never contains a message.
        """
        return Queue(f"{self.prefix}making", {"x-queue-type": "classic"})

    @property
    def young(self) -> Queue:
        """Queue that exists for a few seconds after the streams of a namespace were created."""
        return Queue(
            f"{self.prefix}young", {"x-queue-type": "classic", "x-expires": YOUNG_EXPIRES_MS}
        )

    def flush_queue(self, name: str) -> Queue:
        """Return a queue whose declaration makes the broker register earlier queues on disk.

        Its name must never have been used before. It is a quorum queue in classic namespaces too.
        Each node registers its own replicas, so the queue needs one on every node. The client
        deletes it afterwards.
        """
        arguments: dict[str, Argument] = {
            "x-queue-type": "quorum",
            "x-quorum-initial-group-size": ALL_NODES,
            "x-expires": FLUSH_EXPIRES_MS,
        }
        return Queue(f"{self.prefix}flush.{name}", arguments)

    @property
    def tombstones(self) -> str:
        """Name of the exchange and the stream of deletes. All topology versions share it."""
        return f"{self.namespace}.tombstones"

    @property
    def snapshots(self) -> str:
        """Name of the exchange and the stream of snapshots of the tombstones."""
        return f"{self.namespace}.snapshots"

    @property
    def compaction(self) -> str:
        """Name of the exchange and the queue through which one consumer is asked for a snapshot."""
        return f"{self.prefix}compaction"

    def level_exchange(self, index: int) -> str:
        """Return the exchange of a level; the ready exchange for READY_INDEX."""
        if index == ladder.READY_INDEX:
            return self.ready_exchange
        return f"{self.prefix}level.{ladder.LEVELS[index].name}"

    def hold_queue(self, hop: ladder.Hop) -> str:
        """Return the name of the hold queue of a hop."""
        return f"{self.prefix}hold.{hop.label}"

    def ready_queue(self, topic: str) -> str:
        """Return the name of a topic's ready queue."""
        return f"{self.prefix}ready.{topic}"

    def buried_queue(self, topic: str) -> str:
        """Return the name of a topic's buried queue."""
        return f"{self.prefix}buried.{topic}"

    @property
    def responses_exchange(self) -> str:
        """Exchange that routes responses by the name of their queue."""
        return f"{self.prefix}responses"

    def responses_queue(self, topic: str) -> str:
        """Return the name of the queue that keeps the responses of a topic."""
        return f"{self.prefix}responses.{topic}"

    def reply_queue(self, client: str) -> str:
        """Return the name of the queue of the responses that one client waits for."""
        return f"{self.prefix}replies.{client}"

    def mailbox(self, peer: str) -> str:
        """Return the name of the queue of messages from other clients to this one.

        It is bound to the exchange of responses: by its name, and by `peers`.
        """
        return f"{self.peers}.{peer}"

    @property
    def peers(self) -> str:
        """Routing key of messages to all clients that have a mailbox."""
        return f"{self.prefix}peers"

    # Declarations, in the order in which they must be declared

    def base(self, *, with_streams: bool = True) -> tuple[Declaration, ...]:
        """Return what every namespace has: exchanges, `unrouted`, `settling` and the log."""
        deletion = [part for part in self.deletion() if with_streams or not part.is_stream]
        return (
            Exchange(self.unrouted, "fanout"),
            Queue(self.unrouted, self._kept_arguments()),
            Binding(self.unrouted, self.unrouted, "queue", ""),
            *(self._exchange(name, "topic") for name in self._level_exchanges()),
            self._exchange(self.buried_exchange, "direct"),
            *self._passes(),
            # No alternate exchange: a response may be dropped when its client is gone.
            Exchange(self.responses_exchange, "direct"),
            Exchange(self.stabilising, "fanout"),
            Queue(self.stabilising, self._kept_arguments() | {"x-message-ttl": STABILISING_MS}),
            Binding(self.stabilising, self.stabilising, "queue", ""),
            *(item for part in deletion for item in part.declarations),
        )

    def entrance(self, digits: ladder.Digits) -> str:
        """Return the exchange to publish to: that of the first hold queue, or ready."""
        hops = ladder.hops(digits)
        return self.hold_queue(hops[0]) if hops else self.ready_exchange

    def hold(self, hop: ladder.Hop) -> Part:
        """Return the hold queue of one digit, its entrance, and the bindings that lead to it.

        The entrance is a fanout exchange with the queue's name. A publisher knows the first hold
        queue, and topic routing is slow on brokers before 4: 9,300 confirmed puts/s through the
        level's exchange, 15,400 through the entrance (3.10.8; docs/measurements.md).
        """
        name = self.hold_queue(hop)
        arguments: dict[str, Argument] = {
            "x-queue-type": self.queue_type,
            "x-message-ttl": hop.hold_ms,
            "x-dead-letter-exchange": self.level_exchange(hop.level.index + 1),
        }
        key = f"{_stars(hop.level.index)}{hop.digit}.#"
        source = self.level_exchange(hop.level.index)
        return Part(
            Queue(name, arguments | self._safe_dead_lettering()),
            (
                Binding(source, name, "queue", key),
                Exchange(name, "fanout", {"alternate-exchange": self.unrouted}),
                Binding(name, name, "queue", ""),
            ),
        )

    def topic(self, topic: str) -> tuple[Part, Part]:
        """Return a topic's buried queue, then its ready queue, which dead-letters to the former."""
        buried, ready = self.buried_queue(topic), self.ready_queue(topic)
        key = _stars(ladder.READY_INDEX) + topic
        return (
            Part(
                Queue(buried, self._kept_arguments()),
                (Binding(self.buried_exchange, buried, "queue", topic),),
            ),
            Part(
                Queue(ready, self._ready_arguments(topic)),
                # Eight stars, not `#.topic`: `#.b` would also match the jobs of the topic `a.b`.
                (Binding(self.ready_exchange, ready, "queue", key),),
            ),
        )

    def responses(self, topic: str) -> Part:
        """Return the queue that keeps a topic's newest responses, each for a day."""
        return self._responses(self.responses_queue(topic), {})

    def replies(self, client: str) -> Part:
        """Return the queue of the responses that one client waits for.

        It expires after the client.
        """
        return self._responses(self.reply_queue(client), {"x-expires": REPLY_QUEUE_EXPIRES_MS})

    def mailbox_of(self, peer: str) -> Part:
        """Return the mailbox of a client, which the broker deletes with its connection."""
        name = self.mailbox(peer)
        arguments: dict[str, Argument] = {
            "x-queue-type": "classic",
            "x-message-ttl": MAILBOX_TTL_MS,
            "x-max-length": MAX_IN_MAILBOX,
            "x-overflow": "drop-head",
        }
        keys = (name, self.peers)
        return Part(
            Queue(name, arguments, is_exclusive=True),
            tuple(Binding(self.responses_exchange, name, "queue", key) for key in keys),
        )

    def log(self) -> Part:
        """Return the stream of tombstones."""
        age_ms = self.max_delay_ms + RETENTION_MARGIN_MS
        return self._stream(self.tombstones, age_ms)

    def log_snapshots(self) -> Part:
        """Return the stream of snapshots."""
        return self._stream(self.snapshots, SNAPSHOT_AGE_MS)

    def log_compaction(self) -> Part:
        """Return the queue whose single active consumer writes snapshots.

        The queue is limited to one request, because one at a time is enough.
        """
        one: dict[str, Argument] = {
            "x-single-active-consumer": True,
            "x-max-length": 1,
            "x-overflow": "drop-head",
        }
        return self._fanned(Queue(self.compaction, self._kept_arguments() | one))

    def deletion(self) -> tuple[Part, Part, Part]:
        """Return what deletes need: the log, its snapshots, and the queue of snapshot requests."""
        return self.log(), self.log_snapshots(), self.log_compaction()

    def path(self, digits: ladder.Digits, topic: str) -> tuple[Part, ...]:
        """Return what a job passes through, in order: its hold queues, then its topic."""
        return (*(self.hold(hop) for hop in ladder.hops(digits)), *self.topic(topic))

    def plan(
        self, hops: Iterable[ladder.Hop] = (), topics: Iterable[str] = ()
    ) -> tuple[Declaration, ...]:
        """Return the base, these hold queues and these topics, in order of declaration."""
        parts = [self.hold(hop) for hop in hops]
        parts += [part for topic in topics for part in self.topic(topic)]
        return (*self.base(), *(item for part in parts for item in part.declarations))

    # Pieces

    def _level_exchanges(self) -> list[str]:
        return [self.level_exchange(index) for index in range(ladder.READY_INDEX + 1)]

    def _passes(self) -> Iterator[Binding]:
        for level in ladder.LEVELS:
            yield Binding(
                self.level_exchange(level.index),
                self.level_exchange(level.index + 1),
                "exchange",
                f"{_stars(level.index)}0.#",
            )

    def _exchange(self, name: str, type_: Literal["topic", "direct"]) -> Exchange:
        return Exchange(name, type_, {"alternate-exchange": self.unrouted})

    def _ready_arguments(self, topic: str) -> dict[str, Argument]:
        arguments: dict[str, Argument] = {
            "x-queue-type": self.queue_type,
            "x-dead-letter-exchange": self.buried_exchange,
            "x-dead-letter-routing-key": topic,
        }
        if self.queue_type == "quorum":
            arguments["x-delivery-limit"] = DELIVERY_LIMIT
        return arguments | self._safe_dead_lettering()

    def _kept_arguments(self) -> dict[str, Argument]:
        if self.queue_type == "classic":
            return {"x-queue-type": "classic"}
        return {
            "x-queue-type": "quorum",
            "x-delivery-limit": UNLIMITED_DELIVERIES,
            "x-queue-leader-locator": "balanced",
        }

    def _stream(self, name: str, age_ms: int) -> Part:
        arguments: dict[str, Argument] = {
            "x-queue-type": "stream",
            "x-max-age": f"{age_ms // ladder.SECOND_MS}s",
            "x-stream-max-segment-size-bytes": LOG_SEGMENT_BYTES,
            "x-queue-leader-locator": "balanced",
        }
        return self._fanned(Queue(name, arguments))

    @staticmethod
    def _fanned(queue: Queue) -> Part:
        """Return a queue with its own exchange. Users may lack access to the default one."""
        return Part(
            queue, (Exchange(queue.name, "fanout"), Binding(queue.name, queue.name, "queue", ""))
        )

    def _responses(self, name: str, arguments: dict[str, Argument]) -> Part:
        """Return a queue of responses: bounded, because a client may never read it."""
        bounds: dict[str, Argument] = {
            "x-message-ttl": RESPONSE_TTL_MS,
            "x-max-length": MAX_RESPONSES,
            "x-overflow": "drop-head",
        }
        return Part(
            Queue(name, self._kept_arguments() | bounds | arguments),
            (Binding(self.responses_exchange, name, "queue", name),),
        )

    def _safe_dead_lettering(self) -> dict[str, Argument]:
        """Return arguments for dead-lettering with confirms, with leaders spread over the nodes.

        At-least-once requires `reject-publish`. No length limit is set, so nothing is rejected.
        """
        if self.queue_type == "classic":
            return {}
        return {
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-queue-leader-locator": "balanced",
        }


def _stars(count: int) -> str:
    return "*." * count
