"""A subscription: consumes one queue on a channel of its own, and again after any interruption.

The queue may be missing or deleted, this user may lack the permission to read it, the broker may
close the channel because a job was unacked for too long, and the connection may be lost. After the
first success every failure is retried. Before that, a failure is a mistake that has to be fixed,
and is reported.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.transport import Channel

RETRY_SECONDS = 2.0
"""Wait before a queue that could not be consumed is tried again."""


class Subscriber(Protocol):
    """Handles the events of a subscription: a topic, the log of deletes, or a reply queue.

    All methods are called on the transport's thread.
    """

    def delivered(self, delivery: Delivery) -> None:
        """Handle a message."""

    def consuming(self) -> None:
        """Handle the start of the consumer."""

    def interrupted(self, lost: Sequence[Lease]) -> None:
        """Handle the loss of the channel and of these leases; another channel follows."""

    def failed(self, error: Exception) -> None:
        """Handle an error before the first success, which is not retried."""


class Subscription:
    """Consumes one queue, on the transport's thread."""

    def __init__(
        self,
        consumer: Consumer,
        queue: str,
        parts: Sequence[Part],
        prefetch: int,
        subscriber: Subscriber,
        *,
        arguments: Callable[[], dict[str, Any]] = dict,
        may_found: bool = False,
    ) -> None:
        self.queue = queue
        self.is_open = False
        """Whether the consumer is active."""
        self._consumer = consumer
        self._parts = tuple(parts)
        self._prefetch = prefetch
        self._subscriber = subscriber
        self._arguments = arguments
        self._may_found = may_found
        """Whether a missing namespace is created, even by a consumer that otherwise does not create
        one."""
        self._channel: Channel | None = None
        self._tag: str | None = None
        self._is_opening = False
        self._kept = 0
        """Number of jobs of the current consumer that only wait to be published."""
        self._round = 0
        """Generation counter: callbacks from an earlier generation are ignored."""
        self._is_wanted = True
        self._worked = False

    def begin(self) -> None:
        """Consume the queue, unless it is consumed already; declare what is missing.

        Without a connection this does nothing: the subscriber calls it again when there is one.
        """
        if not self._consumer.is_connected:
            return
        if self._is_wanted and not self._is_opening and self._channel is None:
            self._is_opening = True
            made = partial(self._made, self._round)
            self._consumer.queues.make(self._parts, made, may_found=self._may_found)

    @property
    def is_idle(self) -> bool:
        """Whether the queue is neither consumed nor about to be."""
        return self._channel is None and not self._is_opening

    def begin_again(self) -> None:
        """Consume the queue again, on another channel."""
        if self._is_opening and self._channel is None:
            return
        self.stop()
        self.begin()

    def stop(self) -> None:
        """Close the channel, which requeues its messages, until `begin` is called."""
        self._drop_channel()

    def go_on(self) -> None:
        """Consume the queue, also after `end`, on the same channel if it is still open."""
        self._is_wanted = True
        channel = self._channel
        if channel is None:
            self.begin()
        elif self._tag is None and channel.is_open:
            self._consume(channel)

    def end(self) -> None:
        """Cancel the consumer. Messages that were received can still be settled on the channel."""
        self._is_wanted = False
        channel, tag = self._channel, self._tag
        if self.is_open and channel is not None and channel.is_open and tag is not None:
            self.is_open = False
            self._tag = None
            channel.cancel(tag)

    def make_room(self) -> None:
        """Count a job that waits to be published; start another consumer at half the prefetch.

        Each consumer of a channel has a prefetch of its own, and a cancelled one keeps its
        messages.
        """
        self._kept += 1
        if self._is_wanted and 2 * self._kept >= self._prefetch:
            self.end()
            self.go_on()

    def connection_lost(self) -> None:
        """Forget the channel, which was lost with the connection."""
        self._round += 1
        self._channel = self._tag = None
        self.is_open = self._is_opening = False

    def channel_lost(self, number: int, error: Exception) -> bool:
        """Handle a channel closed by the broker; return whether it was this subscription's."""
        if self._channel is None or self._channel.number != number:
            return False
        self.connection_lost()
        self._try_again(error)
        return True

    def is_on(self, number: int) -> bool:
        """Whether this channel is the current one; messages of others cannot be settled."""
        return self._channel is not None and self._channel.number == number

    def count(self, counted: Callable[[int], None]) -> None:
        """Call back with the number of ready messages in the queue."""
        if self._channel is not None and self._channel.is_open:
            self._channel.count(self.queue, lambda ready, _: counted(ready))

    def look(self, exchange: str, seen: Callable[[], None]) -> None:
        """Call back if the exchange exists, after everything sent on the channel before."""
        if self._channel is not None and self._channel.is_open:
            self._channel.look(exchange, seen)

    def _made(self, round_: int, error: Exception | None) -> None:
        if round_ != self._round:
            return
        if error is None:
            opened = partial(self._opened, round_)
            self._consumer.channels.open(opened, self._inbound, self._prefetch, self.make_room)
        else:
            self._is_opening = False
            self._try_again(error)

    def _opened(self, round_: int, channel: Channel) -> None:
        if round_ != self._round:
            self._consumer.channels.lose(channel)
            channel.close()
            return
        self._channel = channel
        channel.on_cancelled(lambda _: self._queue_gone(channel))
        channel.qos(self._prefetch)
        self._consume(channel)

    def _consume(self, channel: Channel) -> None:
        self._kept = 0
        self._tag = channel.consume(self.queue, self._arguments(), self._consuming)

    def _consuming(self) -> None:
        self.is_open = self._worked = True
        self._subscriber.consuming()
        if not self._is_wanted:
            self.end()

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if isinstance(found, Delivery):
            self._subscriber.delivered(found)

    def _queue_gone(self, channel: Channel) -> None:
        """Consume again, because the queue was deleted or a job was unacked for too long."""
        if channel is not self._channel:
            return
        logger.warning(
            "%s: consumer cancelled by the broker, consuming again (the queue was deleted, or a "
            "job was unacked for longer than the broker's consumer_timeout)",
            self.queue,
        )
        self._consumer.queues.forget()
        lost = self._drop_channel()
        self._consumer.call_later(RETRY_SECONDS, self.begin)
        self._subscriber.interrupted(lost)

    def _drop_channel(self) -> Sequence[Lease]:
        channel = self._channel
        lost = self._consumer.channels.lose(channel)
        if channel is not None and channel.is_open:
            channel.close()
        self.connection_lost()
        return lost

    def _try_again(self, error: Exception) -> None:
        if self._worked:
            text = "%s: not consumed, trying again in %g s (%s)"
            logger.warning(text, self.queue, RETRY_SECONDS, error)
            self._consumer.call_later(RETRY_SECONDS, self.begin)
        else:
            self._subscriber.failed(error)
