"""Exchanges, queues and bindings as values, before they are declared on a broker."""

from dataclasses import dataclass, field
from typing import Literal

Argument = str | int
"""The value of one argument of a declaration."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: Literal["topic", "direct", "fanout"]
    arguments: dict[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue, or one that belongs to the connection that declares it."""

    name: str
    arguments: dict[str, Argument] = field(default_factory=dict)
    is_exclusive: bool = False
    """Whether the queue is transient: it is deleted with its connection, or its last consumer.

    RabbitMQ 4.3 refuses transient queues that are not exclusive."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding from an exchange to a queue or another exchange."""

    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    key: str


Declaration = Exchange | Queue | Binding


@dataclass(frozen=True, slots=True)
class Part:
    """A queue with the exchanges and bindings that lead to it, which are declared together."""

    queue: Queue
    ways: tuple[Exchange | Binding, ...]

    @property
    def is_stream(self) -> bool:
        """Whether the queue is a stream, which a crash cannot lose even when it is new."""
        return self.queue.arguments.get("x-queue-type") == "stream"

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The queue, then the exchanges and bindings that lead to it."""
        return (self.queue, *self.ways)
