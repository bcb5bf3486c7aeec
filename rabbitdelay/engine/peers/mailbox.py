"""The mailbox of one client: a queue of its own, to which other clients publish.

The queue is exclusive, so that the broker deletes it with the client's connection. A message to a
client that is gone is then returned at once. Each connection has a mailbox with a new name, because
the broker may take a minute to notice that the connection before it was lost.
"""

from collections.abc import Callable

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.pending import Pending, Resolve, Target
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.transport import Channel, Then
from rabbitdelay.errors import PermissionRefused

PREFETCH = 500
RETRY_SECONDS = 1.0
"""Interval at which a mailbox that could not be created is tried again: the namespace may be
missing until its first put."""
OnMessage = Callable[[Message], None]


class Mailbox:
    """Consumes the client's mailbox, on the transport's thread."""

    def __init__(
        self,
        consumer: Consumer,
        publisher: Publisher,
        name: str,
        *,
        on_message: OnMessage,
        on_open: Then,
    ) -> None:
        self.is_open = False
        """Whether messages can arrive."""
        self.is_refused = False
        """Whether this user may not create it."""
        self.connections = 0
        self._consumer = consumer
        self._publisher = publisher
        self._topology = consumer.topology
        self._name = name
        self._on_message = on_message
        self._on_open = on_open
        self._channel: Channel | None = None
        self._is_opening = False
        self._round = 0
        """Generation counter: callbacks from an earlier generation are ignored."""

    @property
    def peer(self) -> str:
        """The name of this client as a peer, on its current connection."""
        return f"{self._name}.{self.connections}"

    # From any thread

    def post(self, peer: str | None, message: Message, seconds: float, resolve: Resolve) -> None:
        """Publish a message to a peer, or to all if None.

        `resolve` gets JobRefused if the peer has no mailbox.
        """
        topology = self._topology
        key = topology.peers if peer is None else topology.mailbox(peer)
        target = Target(topology.responses_exchange, key)
        now = self._publisher.monotonic()
        label = f"message to {key}"
        self._publisher.submit_copy(
            Pending(message, target, now, now + seconds, resolve, label, is_expendable=True)
        )

    # On the transport's thread

    def open(self) -> None:
        """Create the mailbox and consume it; without a connection, do nothing."""
        if self._consumer.is_connected and self._channel is None and not self._is_opening:
            self._is_opening = True
            round_ = self._round
            self._consumer.channels.open(lambda one: self._opened(round_, one), self._inbound)

    def connected(self) -> None:
        """Note a new connection."""
        self.connections += 1
        self.is_refused = False

    def forget(self) -> None:
        """Forget the mailbox, which was lost with its connection or its channel."""
        self._round += 1
        self._channel = None
        self.is_open = self._is_opening = False

    def channel_lost(self, number: int, error: Exception) -> None:
        """Create the mailbox again if it was its channel."""
        if self._channel is None or self._channel.number != number:
            return
        self.forget()
        self.is_refused = isinstance(error, PermissionRefused)
        if self.is_refused:
            logger.warning("mailbox: not created (%s)", error)
        else:
            logger.debug("mailbox: not created, trying again in %g s (%s)", RETRY_SECONDS, error)
            self._consumer.call_later(RETRY_SECONDS, self.open)

    def _opened(self, round_: int, channel: Channel) -> None:
        if round_ != self._round:
            self._consumer.channels.lose(channel)
            channel.close()
            return
        self._channel = channel
        self._is_opening = False
        channel.on_cancelled(lambda _: self._queue_gone(channel))
        channel.qos(PREFETCH)
        part = self._topology.mailbox_of(self.peer)
        for declaration in part.declarations:
            channel.declare(declaration)
        channel.consume(part.queue.name, {}, lambda: self._consuming(channel))

    def _consuming(self, channel: Channel) -> None:
        if channel is self._channel:
            self.is_open = True
            self._on_open()

    def _queue_gone(self, channel: Channel) -> None:
        if channel is self._channel:
            self._consumer.channels.lose(channel)
            channel.close()
            self.forget()
            self._consumer.call_later(RETRY_SECONDS, self.open)

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if isinstance(found, Delivery):
            self._consumer.send(encode.ack(found.channel, found.tag))
            if found.problem is None:
                self._on_message(found.message)
