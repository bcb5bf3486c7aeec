"""The wire: what the engine needs of a client library, and nothing else.

sync/transport.py implements it over pika, on a thread of its own; aio/transport.py over aio-pika,
on the event loop. Everything is called, and calls back, on that one thread, except `call`, which
is safe from any thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rabbitdelay.address import Address
from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.topology.objects import Binding, Exchange, Queue
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import ConnectionFailed, TopologyError

OnInbound = Callable[[Delivery | GetEmpty], None]
Then = Callable[[], None]


def nothing(*_: object) -> None:
    """What is called when nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The broker closed a channel, and says why."""

    code: int
    text: str

    def error(self) -> TopologyError:
        """The same as our error."""
        return reply_codes.channel_error(self.code, self.text)


@dataclass(frozen=True, slots=True)
class Confirm:
    """The broker has a message, or will not take it."""

    tag: int
    multiple: bool
    is_taken: bool


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that the broker has nowhere to put. A confirm of it follows, and means nothing."""

    exchange: str
    routing_key: str
    text: str
    message_id: str | None
    headers: Mapping[str, Any]


class Channel(Protocol):
    """One channel. What is asked on it is answered in order, unless it is closed before."""

    @property
    def number(self) -> int:
        """Its number on the connection."""

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""

    def on_closed(self, closed: "Callable[[Channel, Closed], None]") -> None:
        """Call this when the broker closes it; not when we do, or the connection goes."""

    def on_cancelled(self, cancelled: Callable[[str], None]) -> None:
        """Call this with the consumer tag when the broker cancels a consumer."""

    def qos(self, prefetch: int) -> None:
        """Let so many messages be unacked, for each consumer that follows."""

    def consume(self, queue: str, arguments: Mapping[str, Any], consuming: Then) -> str:
        """Consume a queue; return the consumer tag at once."""

    def cancel(self, tag: str, cancelled: Then = nothing) -> None:
        """Consume no more."""

    def count(self, queue: str, counted: Callable[[int, int], None]) -> None:
        """Tell how many messages are ready in a queue, and how many consume it."""

    def look(self, exchange: str, seen: Then) -> None:
        """Answer when there is such an exchange."""

    def declare(
        self, declaration: Exchange | Queue | Binding, declared: Then | None = None
    ) -> None:
        """Make a durable exchange or queue, or a binding.

        Without `declared` the broker does not answer. It closes the channel on an error, as always.
        """

    def delete(self, queue: str) -> None:
        """Delete a queue; the broker does not answer."""

    def purge(self, queue: str, purged: Callable[[int], None]) -> None:
        """Empty a queue; tell how many messages were in it."""

    def confirm(
        self,
        confirmed: Callable[[Confirm], None],
        returned: Callable[[Returned], None],
        then: Then,
    ) -> None:
        """Let the broker confirm what is published on it."""

    def close(self) -> None:
        """Close it."""


class Link(Protocol):
    """One open connection."""

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""

    @property
    def frame_max(self) -> int:
        """The largest frame, as agreed with the broker."""

    @property
    def broker_version(self) -> str:
        """The version of RabbitMQ, such as `4.3.6`; empty when the broker does not tell."""

    def send_frames(self, data: bytes) -> None:
        """Send whole frames, on any of its channels."""

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Hand over messages; `on_read` is called after all that came at once."""

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Call this with the reason when the broker blocks who publishes, with None afterwards."""

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel."""

    def close(self) -> None:
        """Close it in good order."""


class Owner(Protocol):
    """Who is told what happens to the wire."""

    def connection_opened(self, link: Link) -> None:
        """There is a connection, with nothing on it yet."""

    def connection_failed(self, error: ConnectionFailed) -> None:
        """An attempt failed or the connection was lost; another attempt will follow."""

    def connection_closed(self) -> None:
        """It was closed on purpose, or its thread has died: nothing follows."""

    def close_soon(self, flush_seconds: float) -> None:
        """Flush and close, from any thread."""

    def abandon(self) -> None:
        """Forget everything: this is a forked child, and the parent goes on with it."""


class Wire(Protocol):
    """A thread, or an event loop, and one connection at a time on it."""

    ended: Future[None]
    """Done when nothing will be called any more."""

    def start(self, owner: Owner, first: Then) -> None:
        """Begin, by calling `first`; the owner is told when it has ended."""

    def call(self, function: Then) -> bool:
        """Run a function soon, from any thread; False when it has ended."""

    def may_wait(self) -> bool:
        """Whether the caller may wait for what happens on it: not on a thread of its own."""

    def call_later(self, seconds: float, function: Then) -> object:
        """Run a function after a while; return what cancels it."""

    def cancel(self, timer: object) -> None:
        """Do not run it after all."""

    def connect(
        self,
        address: Address,
        opened: Callable[[Link], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        """Connect. `failed` is called once, when that fails or when what was opened is lost."""

    def stop(self) -> None:
        """End."""

    def cut(self) -> None:
        """End a connection that is being closed, and whose end the broker does not confirm."""

    def abandon(self) -> None:
        """In a forked child: let go of the parent's connection without a word on it."""
