"""The engine's channel interface, implemented with a channel of pika."""

from collections.abc import Callable, Mapping
from typing import Any

from pika import exceptions as pika_errors
from pika.channel import Channel as PikaChannel
from pika.exchange_type import ExchangeType

from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.topology.objects import Binding, Exchange, Queue
from rabbitdelay.engine.transport import Channel, Closed, Confirm, Then, nothing


class ThreadChannel:
    """A channel of pika. On a channel that is closing, requests are dropped without a reply."""

    def __init__(self, channel: PikaChannel) -> None:
        self._channel = channel
        self.number: int = channel.channel_number
        self.returned: Callable[[Returned], None] = nothing
        """Called by the connection, which reads returned messages before pika sees them."""

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used."""
        return self._channel.is_open

    def on_closed(self, closed: Callable[[Channel, Closed], None]) -> None:
        """Register a callback for the broker closing the channel."""

        def told(_channel: PikaChannel, error: Exception) -> None:
            if isinstance(error, pika_errors.ChannelClosedByBroker):
                closed(self, Closed(error.reply_code, error.reply_text))

        self._channel.add_on_close_callback(told)

    def on_cancelled(self, cancelled: Callable[[str], None]) -> None:
        """Register a callback for the broker cancelling a consumer."""
        self._channel.add_on_cancel_callback(lambda frame: cancelled(frame.method.consumer_tag))

    def qos(self, prefetch: int) -> None:
        """Set the prefetch of each consumer that is started afterwards."""
        if self.is_open:
            self._channel.basic_qos(prefetch_count=prefetch)

    def consume(self, queue: str, arguments: Mapping[str, Any], consuming: Then) -> str:
        """Start a consumer; return its tag at once."""
        if not self.is_open:
            return ""
        # Deliveries are read before pika sees them, so its callback is never called.
        return self._channel.basic_consume(
            queue, nothing, arguments=dict(arguments), callback=lambda _: consuming()
        )

    def cancel(self, tag: str, cancelled: Then = nothing) -> None:
        """Cancel a consumer."""
        if self.is_open:
            self._channel.basic_cancel(tag, callback=lambda _: cancelled())

    def count(self, queue: str, counted: Callable[[int, int], None]) -> None:
        """Call back with the number of ready messages and of consumers of a queue."""

        def answered(frame: Any) -> None:  # noqa: ANN401 - pika's method frame
            counted(frame.method.message_count, frame.method.consumer_count)

        if self.is_open:
            self._channel.queue_declare(queue, passive=True, callback=answered)

    def look(self, exchange: str, seen: Then) -> None:
        """Call back if the exchange exists."""
        if self.is_open:
            self._channel.exchange_declare(exchange, passive=True, callback=lambda _: seen())

    def declare(
        self, declaration: Exchange | Queue | Binding, declared: Then | None = None
    ) -> None:
        """Declare an exchange, a queue or a binding."""
        channel = self._channel
        # pika holds back later methods until a declaration is answered. Without a callback it sets
        # `nowait` and sends them at once.
        answered = None if declared is None else lambda _frame: declared()

        if not self.is_open:
            return
        match declaration:
            case Exchange(name, type_, arguments):
                channel.exchange_declare(
                    name,
                    ExchangeType(type_),
                    durable=True,
                    arguments=dict(arguments),
                    callback=answered,
                )
            case Queue(name, arguments, is_exclusive):
                channel.queue_declare(
                    name,
                    durable=not is_exclusive,
                    exclusive=is_exclusive,
                    auto_delete=is_exclusive,
                    arguments=dict(arguments),
                    callback=answered,
                )
            case Binding(source, destination, "queue", key):
                channel.queue_bind(destination, source, key, callback=answered)
            case Binding(source, destination, _, key):
                channel.exchange_bind(destination, source, key, callback=answered)

    def delete(self, queue: str) -> None:
        """Delete a queue, without a reply from the broker."""
        if self.is_open:
            self._channel.queue_delete(queue)

    def remove(self, declaration: Exchange | Queue, removed: Then) -> None:
        """Delete a queue or an exchange."""
        if not self.is_open:
            return
        if isinstance(declaration, Queue):
            self._channel.queue_delete(declaration.name, callback=lambda _: removed())
        else:
            self._channel.exchange_delete(declaration.name, callback=lambda _: removed())

    def purge(self, queue: str, purged: Callable[[int], None]) -> None:
        """Purge a queue; call back with the number of messages that were in it."""

        def answered(frame: Any) -> None:  # noqa: ANN401 - pika's method frame
            purged(frame.method.message_count)

        if self.is_open:
            self._channel.queue_purge(queue, callback=answered)

    def confirm(
        self,
        confirmed: Callable[[Confirm], None],
        returned: Callable[[Returned], None],
        then: Then,
    ) -> None:
        """Enable publisher confirms on the channel."""
        self.returned = returned

        def on_confirm(frame: Any) -> None:  # noqa: ANN401 - pika's method frame
            method = frame.method
            is_taken = method.NAME == "Basic.Ack"
            confirmed(Confirm(method.delivery_tag, method.multiple, is_taken))

        if self.is_open:
            self._channel.confirm_delivery(on_confirm, callback=lambda _: then())

    def close(self) -> None:
        """Close the channel."""
        if self.is_open:
            self._channel.close()
