"""A consumer of a queue."""

from dataclasses import dataclass, field
from typing import Protocol

from rabbitdelay.testing.model.message import Entry


class Receiver(Protocol):
    """The channel of a consumer."""

    def deliver(self, consumer: "Consumer", entry: Entry) -> None:
        """Send a message to the client."""

    def cancelled(self, consumer: "Consumer") -> None:
        """Notify the client that its consumer was cancelled, because its queue was deleted."""


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer: where its messages go, and how many may be unacknowledged."""

    tag: str
    queue: str
    channel: Receiver
    prefetch: int = 0
    """Maximum number of unacknowledged messages; 0 is no limit."""
    acknowledges: bool = True
    unacknowledged: int = field(default=0, init=False)
    next_offset: int = field(default=0, init=False)
    """Of a consumer of a stream: the offset that it reads next."""

    @property
    def has_credit(self) -> bool:
        """Whether another message may be delivered."""
        return not self.prefetch or self.unacknowledged < self.prefetch

    def deliver(self, entry: Entry) -> None:
        """Deliver a message."""
        if self.acknowledges:
            self.unacknowledged += 1
        self.channel.deliver(self, entry)
