"""A channel, as the broker sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rabbitdelay.core.amqp import encode
from rabbitdelay.testing.model import failures
from rabbitdelay.testing.model.consumer import Consumer
from rabbitdelay.testing.model.events import (
    Confirmed,
    ConsumerCancelled,
    Delivered,
    Empty,
    Event,
    ReturnedMessage,
)
from rabbitdelay.testing.model.message import Entry, Message
from rabbitdelay.testing.model.stream import OFFSET
from rabbitdelay.testing.model.vhost import AnyQueue, Vhost

MOST_BODY_BYTES = 16 * 1024 * 1024
"""`max_message_size` of RabbitMQ 4."""
DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"


@dataclass(frozen=True, slots=True)
class _Unacknowledged:
    """A delivered message that waits for its settlement."""

    entry: Entry
    queue: AnyQueue
    consumer: Consumer | None


class Channel:
    """The consumers, the unacknowledged messages and the publisher confirms of one channel."""

    def __init__(
        self,
        number: int,
        vhost: Vhost,
        emit: Callable[[Event], None],
        declare_exclusive: Callable[[str, Mapping[str, Any]], str],
    ) -> None:
        self.number = number
        self.vhost = vhost
        self.declare_exclusive = declare_exclusive
        """Declares a queue that is deleted with the channel's connection; returns its name."""
        self.is_stuck = False
        """Whether the channel waits for a queue that does not answer, and reads nothing more."""
        self._emit = emit
        self._prefetch = 0
        self._consumers: dict[str, Consumer] = {}
        self._unacknowledged: dict[int, _Unacknowledged] = {}
        """By delivery tag, in ascending order."""
        self._delivered = 0
        self._published: int | None = None
        """Number of published messages; None unless confirms are enabled."""

    # Publishing

    def enable_confirms(self) -> None:
        """Confirm every message that is published from now on."""
        self._published = self._published or 0

    @property
    def has_confirms(self) -> bool:
        """Whether published messages are confirmed."""
        return self._published is not None

    def publish(self, message: Message, *, is_mandatory: bool) -> None:
        """Publish a message; return it if it reaches no queue, and confirm it."""
        _check(message)
        published = self.vhost.publish(message)
        if not published.is_routed and is_mandatory:
            self._emit(ReturnedMessage(self.number, message))
        if self._published is not None:
            self._published += 1
            if published.is_taken is not None:
                self._emit(Confirmed(self.number, self._published, published.is_taken))

    # Consuming

    def set_prefetch(self, count: int) -> None:
        """Set the prefetch of consumers that are started afterwards."""
        self._prefetch = count

    def consume(
        self, queue: str, tag: str, arguments: Mapping[str, Any], *, acknowledges: bool = True
    ) -> None:
        """Start a consumer, which gets messages from `serve` on."""
        found = self.vhost.queue(queue)
        consumer = Consumer(tag, queue, self, self._prefetch, acknowledges)
        found.subscribe(consumer, arguments.get(OFFSET))
        self._consumers[tag] = consumer

    def serve(self, tag: str) -> None:
        """Deliver what waits for a consumer, after the client was told that it has started."""
        consumer = self._consumers.get(tag)
        if consumer is not None:
            self.vhost.queues[consumer.queue].serve()

    def cancel(self, tag: str) -> None:
        """Cancel a consumer. Its messages stay unacknowledged."""
        consumer = self._consumers.pop(tag, None)
        if consumer is not None and consumer.queue in self.vhost.queues:
            self.vhost.queues[consumer.queue].unsubscribe(consumer)

    def get(self, queue: str, *, acknowledges: bool = True) -> None:
        """Deliver the next message of a queue, or say that there is none."""
        found = self.vhost.queue(queue)
        entry = found.take()
        if entry is None:
            self._emit(Empty(self.number))
        else:
            self._send(found, entry, None, is_kept=acknowledges)

    def deliver(self, consumer: Consumer, entry: Entry) -> None:
        """Send a message to a consumer."""
        queue = self.vhost.queues[consumer.queue]
        self._send(queue, entry, consumer, is_kept=consumer.acknowledges)

    def cancelled(self, consumer: Consumer) -> None:
        """Notify the client that the queue of a consumer was deleted."""
        if self._consumers.pop(consumer.tag, None) is not None:
            self._emit(ConsumerCancelled(self.number, consumer.tag))

    def _send(
        self, queue: AnyQueue, entry: Entry, consumer: Consumer | None, *, is_kept: bool
    ) -> None:
        self._delivered += 1
        if is_kept:
            self._unacknowledged[self._delivered] = _Unacknowledged(entry, queue, consumer)
        tag = None if consumer is None else consumer.tag
        content = entry.message.delivered(queue.headers(entry))
        where = (self.number, tag, self._delivered, entry.returns > 0)
        self._emit(Delivered(*where, entry.message, content, queue.count))

    @property
    def unacknowledged(self) -> list[tuple[str, Entry]]:
        """The messages that wait for their settlement, each with the name of its queue."""
        return [(one.queue.name, one.entry) for one in self._unacknowledged.values()]

    # Settling

    def acknowledge(self, tag: int, *, multiple: bool) -> None:
        """Settle messages as done."""
        for one in self._taken(tag, multiple=multiple):
            one.queue.acknowledge(one.entry)
            self._give_credit(one)

    def reject(self, tag: int, *, multiple: bool, requeue: bool, has_failed: bool) -> None:
        """Put messages back, or dead-letter them."""
        taken = self._taken(tag, multiple=multiple)
        if requeue:
            self._requeue(taken, has_failed=has_failed)
            return
        for one in taken:
            one.queue.reject(one.entry)
            self._give_credit(one)

    def requeue_all(self) -> None:
        """Put every unacknowledged message back, for basic.recover."""
        taken, self._unacknowledged = list(self._unacknowledged.values()), {}
        self._requeue(taken, has_failed=False)

    def close(self) -> None:
        """End the channel: cancel its consumers and put its messages back."""
        for tag in tuple(self._consumers):
            self.cancel(tag)
        taken, self._unacknowledged = list(self._unacknowledged.values()), {}
        self._requeue(taken, has_failed=True)

    def _taken(self, tag: int, *, multiple: bool) -> list[_Unacknowledged]:
        """Remove and return the messages that a settlement names."""
        if not multiple:
            if tag not in self._unacknowledged:
                raise failures.precondition_failed(f"unknown delivery tag {tag}")
            return [self._unacknowledged.pop(tag)]
        if tag and tag not in self._unacknowledged:
            raise failures.precondition_failed(f"unknown delivery tag {tag}")
        tags = [one for one in self._unacknowledged if not tag or one <= tag]
        return [self._unacknowledged.pop(one) for one in tags]

    @staticmethod
    def _requeue(taken: list[_Unacknowledged], *, has_failed: bool) -> None:
        by_queue: dict[AnyQueue, list[Entry]] = {}
        for one in taken:
            if one.consumer is not None:  # before the messages can come back to it
                one.consumer.unacknowledged -= 1
            by_queue.setdefault(one.queue, []).append(one.entry)
        for queue, entries in by_queue.items():
            queue.requeue(entries, has_failed=has_failed)

    @staticmethod
    def _give_credit(one: _Unacknowledged) -> None:
        if one.consumer is not None:
            one.consumer.unacknowledged -= 1
        one.queue.serve()


def _check(message: Message) -> None:
    """Raise the broker's error for a message that it does not accept."""
    size = len(message.content.body)
    if size > MOST_BODY_BYTES:
        raise failures.precondition_failed(
            f"message size {size} is larger than configured max size {MOST_BODY_BYTES}"
        )
    expiration = message.content.text(encode.EXPIRATION)
    if expiration is not None and not expiration.isdecimal():
        raise failures.precondition_failed(f"invalid expiration '{expiration}': no_integer")
    if message.content.text(encode.REPLY_TO) == DIRECT_REPLY_TO:
        raise failures.precondition_failed("fast reply consumer does not exist")
