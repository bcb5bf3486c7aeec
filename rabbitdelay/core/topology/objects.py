"""The objects that a client declares on a broker, as values: exchanges, queues and bindings."""

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
    """A durable queue."""

    name: str
    arguments: dict[str, Argument] = field(default_factory=dict)


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
    """A queue with what leads to it: the smallest thing that is made at once."""

    queue: Queue
    ways: tuple[Exchange | Binding, ...]

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream: those are safe from the first moment on."""
        return self.queue.arguments.get("x-queue-type") == "stream"

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The queue first, then what leads to it."""
        return (self.queue, *self.ways)
