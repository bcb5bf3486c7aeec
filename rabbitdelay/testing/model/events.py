"""Events that the broker sends to a client, in order."""

from dataclasses import dataclass

from rabbitdelay.testing.model.content import Content
from rabbitdelay.testing.model.message import Message


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message for a consumer, or with an empty tag the answer to a basic.get."""

    channel: int
    consumer_tag: str | None
    delivery_tag: int
    is_redelivered: bool
    message: Message
    content: Content
    """The content with the headers that the broker adds."""
    left: int = 0
    """Number of messages left in the queue, in the answer to a basic.get."""


@dataclass(frozen=True, slots=True)
class Empty:
    """The answer to a basic.get from an empty queue."""

    channel: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A basic.ack or basic.nack of published messages."""

    channel: int
    tag: int
    is_taken: bool


@dataclass(frozen=True, slots=True)
class ReturnedMessage:
    """A mandatory message that reached no queue."""

    channel: int
    message: Message


@dataclass(frozen=True, slots=True)
class ConsumerCancelled:
    """A consumer whose queue was deleted."""

    channel: int
    tag: str


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """A channel that the broker has closed because of an error."""

    channel: int
    code: int
    text: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection that the broker has closed because of an error."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The broker accepts no more from this connection, or with None accepts again."""

    reason: str | None


Event = (
    Delivered
    | Empty
    | Confirmed
    | ReturnedMessage
    | ConsumerCancelled
    | ChannelClosed
    | ConnectionClosed
    | Blocked
)
