"""A subscription: one queue, consumed on a channel of its own, through whatever happens to it.

The queue may be missing, be deleted, or be one that this user may not read; the broker may close
the channel when a job is held for too long; the connection comes and goes. What worked once is
tried again. What never worked is a mistake that somebody must mend.
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
"""How long to wait before a queue that could not be consumed is tried again."""


class Subscriber(Protocol):
    """Who is told, on the wire's thread."""

    def delivered(self, delivery: Delivery) -> None:
        """A message has come."""

    def consuming(self) -> None:
        """The broker sends from now on."""

    def interrupted(self, lost: Sequence[Lease]) -> None:
        """The channel is gone, and these leases with it; another will follow."""

    def failed(self, error: Exception) -> None:
        """It never worked, and is not tried again."""


class Subscription:
    """Consumes one queue; everything on the wire's thread."""

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
        """Whether the broker sends."""
        self._consumer = consumer
        self._parts = tuple(parts)
        self._prefetch = prefetch
        self._subscriber = subscriber
        self._arguments = arguments
        self._may_found = may_found
        """Whether the namespace is made for it, also by a consumer that makes none."""
        self._channel: Channel | None = None
        self._tag: str | None = None
        self._is_opening = False
        self._held_back = 0
        """How many jobs of the present consumer are held for a while, without being worked on."""
        self._round = 0
        """Counts up whenever all before is in vain: what was begun then must not go on."""
        self._is_wanted = True
        self._worked = False

    def begin(self) -> None:
        """Consume, unless it does so already; what is missing is made.

        Without a connection nothing is begun: whoever is told of the next one begins then.
        """
        if not self._consumer.is_connected:
            return
        if self._is_wanted and not self._is_opening and self._channel is None:
            self._is_opening = True
            made = partial(self._made, self._round)
            self._consumer.make(self._parts, made, may_found=self._may_found)

    @property
    def is_idle(self) -> bool:
        """Whether it neither consumes nor is about to."""
        return self._channel is None and not self._is_opening

    def begin_again(self) -> None:
        """Consume from anew, on another channel."""
        if self._is_opening and self._channel is None:
            return
        self.stop()
        self.begin()

    def stop(self) -> None:
        """Let go of the channel and all that came on it, also of one to come, until `begin`."""
        self._drop_channel()

    def go_on(self) -> None:
        """Consume, also after `end`, on the same channel if there is one."""
        self._is_wanted = True
        channel = self._channel
        if channel is None:
            self.begin()
        elif self._tag is None and channel.is_open:
            self._consume(channel)

    def end(self) -> None:
        """Consume no more. What has come can be settled on its channel as before."""
        self._is_wanted = False
        channel, tag = self._channel, self._tag
        if self.is_open and channel is not None and channel.is_open and tag is not None:
            self.is_open = False
            self._tag = None
            channel.cancel(tag)

    def make_room(self) -> None:
        """Count a job that is held for a while; consume anew when they take half the prefetch.

        Each consumer of a channel has the whole prefetch. One that was cancelled keeps what it has.
        """
        self._held_back += 1
        if self._is_wanted and 2 * self._held_back >= self._prefetch:
            self.end()
            self.go_on()

    def connection_lost(self) -> None:
        """Its channel is gone with the connection."""
        self._round += 1
        self._channel = self._tag = None
        self.is_open = self._is_opening = False

    def channel_lost(self, number: int, error: Exception) -> bool:
        """The broker closed a channel; say whether it was this one's."""
        if self._channel is None or self._channel.number != number:
            return False
        self.connection_lost()
        self._try_again(error)
        return True

    def is_on(self, number: int) -> bool:
        """Whether it consumes on this channel: what came on another cannot be settled."""
        return self._channel is not None and self._channel.number == number

    def count(self, counted: Callable[[int], None]) -> None:
        """Ask how many messages are ready in the queue."""
        if self._channel is not None and self._channel.is_open:
            self._channel.count(self.queue, lambda ready, _: counted(ready))

    def look(self, exchange: str, seen: Callable[[], None]) -> None:
        """Look for an exchange: the answer comes after all that was sent on the channel before."""
        if self._channel is not None and self._channel.is_open:
            self._channel.look(exchange, seen)

    def _made(self, round_: int, error: Exception | None) -> None:
        if round_ != self._round:
            return
        if error is None:
            opened = partial(self._opened, round_)
            self._consumer.open_channel(opened, self._inbound, self._prefetch, self.make_room)
        else:
            self._is_opening = False
            self._try_again(error)

    def _opened(self, round_: int, channel: Channel) -> None:
        if round_ != self._round:
            self._consumer.lose_channel(channel)
            channel.close()
            return
        self._channel = channel
        channel.on_cancelled(lambda _: self._queue_gone(channel))
        channel.qos(self._prefetch)
        self._consume(channel)

    def _consume(self, channel: Channel) -> None:
        self._held_back = 0
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
        """The broker cancelled the consumer: its queue is gone, or a job was held for too long."""
        if channel is not self._channel:
            return
        logger.warning(
            "%s is consumed again: it was deleted, or a job of it was held for longer than the "
            "broker's consumer_timeout",
            self.queue,
        )
        self._consumer.forget_made()
        lost = self._drop_channel()
        self._consumer.call_later(RETRY_SECONDS, self.begin)
        self._subscriber.interrupted(lost)

    def _drop_channel(self) -> Sequence[Lease]:
        channel = self._channel
        lost = self._consumer.lose_channel(channel)
        if channel is not None and channel.is_open:
            channel.close()
        self.connection_lost()
        return lost

    def _try_again(self, error: Exception) -> None:
        if self._worked:
            logger.warning("%s: %s", self.queue, error)
            self._consumer.call_later(RETRY_SECONDS, self.begin)
        else:
            self._subscriber.failed(error)
