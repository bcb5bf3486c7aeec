"""The transport interface: everything that the engine needs of a client library.

sync/driver/ implements it with pika, on a thread of its own, and aio/driver/ with aio-pika, on the
event loop. The transport calls the engine on that one thread, the transport's thread, and the
engine calls the transport only there. `call` is the exception, because it is safe from any thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rabbitdelay.address import Address
from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty, Returned
from rabbitdelay.core.topology.objects import Binding, Exchange, Queue
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import ConnectionFailed, TopologyError

OnInbound = Callable[[Delivery | GetEmpty], None]
Then = Callable[[], None]


def nothing(*_: object) -> None:
    """Do nothing. The default callback."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The reason that the broker gave for closing a channel."""

    code: int
    text: str

    def error(self) -> TopologyError:
        """Return the reason as an error of this package."""
        return reply_codes.channel_error(self.code, self.text)


@dataclass(frozen=True, slots=True)
class Confirm:
    """The broker's ack or nack of published messages."""

    tag: int
    multiple: bool
    is_taken: bool


class Channel(Protocol):
    """A channel. The broker answers requests on it in order, unless the channel is closed first."""

    @property
    def number(self) -> int:
        """The channel's number on the connection."""

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used."""

    def on_closed(self, closed: "Callable[[Channel, Closed], None]") -> None:
        """Register a callback for the broker closing the channel.

        It is not called when this side closes the channel or when the connection is lost.
        """

    def on_cancelled(self, cancelled: Callable[[str], None]) -> None:
        """Register a callback, given the consumer tag, for the broker cancelling a consumer."""

    def qos(self, prefetch: int) -> None:
        """Set the prefetch of each consumer that is started afterwards."""

    def consume(self, queue: str, arguments: Mapping[str, Any], consuming: Then) -> str:
        """Start a consumer; return its tag at once."""

    def cancel(self, tag: str, cancelled: Then = nothing) -> None:
        """Cancel a consumer."""

    def count(self, queue: str, counted: Callable[[int, int], None]) -> None:
        """Call back with the number of ready messages and of consumers of a queue."""

    def look(self, exchange: str, seen: Then) -> None:
        """Call back if the exchange exists."""

    def declare(
        self, declaration: Exchange | Queue | Binding, declared: Then | None = None
    ) -> None:
        """Declare a durable exchange, a queue or a binding.

        Without `declared` the broker is told not to reply. On an error it closes the channel either
        way.
        """

    def delete(self, queue: str) -> None:
        """Delete a queue, without a reply from the broker."""

    def remove(self, declaration: Exchange | Queue, removed: Then) -> None:
        """Delete a queue, with its messages, or an exchange; a missing one is not an error."""

    def purge(self, queue: str, purged: Callable[[int], None]) -> None:
        """Purge a queue; call back with the number of messages that were in it."""

    def confirm(
        self,
        confirmed: Callable[[Confirm], None],
        returned: Callable[[Returned], None],
        then: Then,
    ) -> None:
        """Enable publisher confirms on the channel."""

    def close(self) -> None:
        """Close the channel."""


class Connection(Protocol):
    """An open connection."""

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""

    @property
    def frame_max(self) -> int:
        """The maximum frame size negotiated with the broker, in bytes."""

    @property
    def broker_version(self) -> str:
        """The version of RabbitMQ, such as `4.3.6`; empty if the broker does not report one."""

    def send_frames(self, data: bytes) -> None:
        """Send complete frames, which may belong to any channel of the connection."""

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Pass on each message; call `on_read` after all messages that arrived together."""

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Register a callback, given the reason when the broker blocks publishers, then None."""

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel."""

    def close(self) -> None:
        """Close the connection with a closing handshake."""


class TransportOwner(Protocol):
    """The owner of a transport, which is notified of what happens to the connection."""

    def connection_opened(self, connection: Connection) -> None:
        """Handle a new connection, which has no channels yet."""

    def connection_failed(self, error: ConnectionFailed) -> None:
        """Handle a failed attempt or a lost connection; another attempt follows."""

    def connection_closed(self) -> None:
        """Handle the end, after a close on purpose or the death of the transport's thread."""

    def close_soon(self, flush_seconds: float) -> None:
        """Flush and close in the background. Safe from any thread."""

    def abandon(self) -> None:
        """Drop all state in a forked child, because the parent goes on using the connection."""


class Transport(Protocol):
    """A thread or an event loop, with at most one connection at a time."""

    ended: Future[None]
    """Done when no more callbacks will be called."""

    def start(self, owner: TransportOwner, first: Then) -> None:
        """Start by calling `first` on the transport's thread. The owner is notified of the end."""

    def call(self, function: Then) -> bool:
        """Schedule a function on the transport's thread, from any thread; False if it has ended."""

    def may_wait(self) -> bool:
        """Whether the caller may wait for the transport, which its own thread may not."""

    def monotonic(self) -> float:
        """Return the seconds on a clock that is never set. Safe from any thread."""

    def call_later(self, seconds: float, function: Then) -> object:
        """Schedule a function after a delay; return a handle for `cancel`."""

    def call_sometime(self, seconds: float, function: Then) -> object:
        """Schedule a function that may be called late, such as a look for something to do."""

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later` or `call_sometime`."""

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        """Connect.

        `failed` is called once: when connecting fails or when the connection is lost.
        """

    def stop(self) -> None:
        """Close the connection and end the transport."""

    def cut(self) -> None:
        """Drop a connection whose closing handshake the broker does not complete."""

    def abandon(self) -> None:
        """Release the parent's connection in a forked child, without sending anything on it."""
