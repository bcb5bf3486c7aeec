"""A channel of a client in memory."""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.topology.objects import Binding, Exchange, Queue
from rabbitdelay.engine.transport import Channel, Closed, Confirm, Then, nothing
from rabbitdelay.testing.model import channel as model

Result = TypeVar("Result")


class Carrier(Protocol):
    """The part of a connection that its channels use."""

    def ask(
        self,
        number: int,
        method: Callable[[model.Channel], Result],
        answered: Callable[[Result], None],
    ) -> None:
        """Have the broker do something on a channel, and call back with its answer."""

    def open_channel_on_broker(self, number: int, opened: Then) -> None:
        """Open a channel on the broker."""

    def close_channel_on_broker(self, number: int) -> None:
        """Close a channel on the broker."""


class MemoryChannel:
    """A channel whose requests are methods of the broker's channel."""

    def __init__(self, carrier: Carrier, number: int) -> None:
        self.number = number
        self.is_open = False
        self.confirmed: Callable[[Confirm], None] = nothing
        self.returned: Callable[[Returned], None] = nothing
        self.cancelled: Callable[[str], None] = nothing
        self._carrier = carrier
        self._closed: list[Callable[[Channel, Closed], None]] = []

    def open(self, opened: Callable[[Channel], None]) -> None:
        """Open the channel."""

        def answered() -> None:
            self.is_open = True
            opened(self)

        self._carrier.open_channel_on_broker(self.number, answered)

    # Called by the engine

    def on_closed(self, closed: Callable[[Channel, Closed], None]) -> None:
        """Register a callback for the broker closing the channel."""
        self._closed.append(closed)

    def on_cancelled(self, cancelled: Callable[[str], None]) -> None:
        """Register a callback for the broker cancelling a consumer."""
        self.cancelled = cancelled

    def qos(self, prefetch: int) -> None:
        """Set the prefetch of each consumer that is started afterwards."""
        self._ask(lambda channel: channel.set_prefetch(prefetch))

    def consume(self, queue: str, arguments: Mapping[str, Any], consuming: Then) -> str:
        """Start a consumer; return its tag at once."""
        tag = f"rabbitdelay-{secrets.token_hex(8)}"
        self._ask(lambda channel: channel.consume(queue, tag, arguments), lambda _: consuming())
        self._ask(lambda channel: channel.serve(tag))
        return tag

    def cancel(self, tag: str, cancelled: Then = nothing) -> None:
        """Cancel a consumer."""
        self._ask(lambda channel: channel.cancel(tag), lambda _: cancelled())

    def count(self, queue: str, counted: Callable[[int, int], None]) -> None:
        """Call back with the number of ready messages and of consumers of a queue."""

        def count(channel: model.Channel) -> tuple[int, int]:
            found = channel.vhost.queue(queue)
            return found.count, len(found.consumers)

        self._ask(count, lambda counts: counted(*counts))

    def look(self, exchange: str, seen: Then) -> None:
        """Call back if the exchange exists."""
        self._ask(lambda channel: channel.vhost.exchange(exchange), lambda _: seen())

    def declare(
        self, declaration: Exchange | Queue | Binding, declared: Then | None = None
    ) -> None:
        """Declare an exchange, a queue or a binding."""
        answered = declared or nothing
        self._ask(partial(_declare, declaration), lambda _: answered())

    def delete(self, queue: str) -> None:
        """Delete a queue, without a reply from the broker."""
        self._ask(lambda channel: channel.vhost.delete_queue(queue))

    def remove(self, declaration: Exchange | Queue, removed: Then) -> None:
        """Delete a queue or an exchange."""
        name = declaration.name
        if isinstance(declaration, Queue):
            self._ask(lambda channel: channel.vhost.delete_queue(name), lambda _: removed())
        else:
            self._ask(lambda channel: channel.vhost.delete_exchange(name), lambda _: removed())

    def purge(self, queue: str, purged: Callable[[int], None]) -> None:
        """Purge a queue; call back with the number of messages that it held."""
        self._ask(lambda channel: channel.vhost.queue(queue).purge(), purged)

    def confirm(
        self,
        confirmed: Callable[[Confirm], None],
        returned: Callable[[Returned], None],
        then: Then,
    ) -> None:
        """Enable publisher confirms on the channel."""
        self.confirmed, self.returned = confirmed, returned
        self._ask(lambda channel: channel.enable_confirms(), lambda _: then())

    def close(self) -> None:
        """Close the channel."""
        if self.is_open:
            self.is_open = False
            self._carrier.close_channel_on_broker(self.number)

    # Called by the connection

    def closed_by_broker(self, code: int, text: str) -> None:
        """Pass on that the broker has closed the channel, unless this side did so first."""
        was_open, self.is_open = self.is_open, False
        for closed in self._closed if was_open else ():
            closed(self, Closed(code, text))

    def _ask(
        self,
        method: Callable[[model.Channel], Result],
        answered: Callable[[Result], None] = nothing,
    ) -> None:
        if self.is_open:
            self._carrier.ask(self.number, method, answered)


def _declare(declaration: Exchange | Queue | Binding, channel: model.Channel) -> None:
    vhost = channel.vhost
    match declaration:
        case Exchange(name, type_, arguments):
            vhost.declare_exchange(name, type_, arguments)
        case Queue(name, arguments, is_exclusive):
            declare = channel.declare_exclusive if is_exclusive else vhost.declare_queue
            declare(name, arguments)
        case Binding():
            vhost.bind(declaration)
