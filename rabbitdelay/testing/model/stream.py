"""A stream: an append-only log that each consumer reads from an offset of its own."""

from collections import deque
from collections.abc import Callable, Iterable

from rabbitdelay.core.amqp.field_table import Timestamp
from rabbitdelay.testing.model import failures
from rabbitdelay.testing.model.arguments import QueueArguments
from rabbitdelay.testing.model.clock import Clock
from rabbitdelay.testing.model.consumer import Consumer
from rabbitdelay.testing.model.dead_letters import Publish
from rabbitdelay.testing.model.lifetime import Lifetime
from rabbitdelay.testing.model.message import Entry, Message
from rabbitdelay.testing.model.queue import refuse_unsupported

OFFSET = "x-stream-offset"


class Stream:
    """A stream on one node. RabbitMQ drops whole segments; here, each message ages by itself."""

    is_stream = True

    def __init__(
        self,
        name: str,
        arguments: QueueArguments,
        clock: Clock,
        _publish: Publish,
        delete: Callable[[], object],
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.lifetime = Lifetime(arguments, clock, delete)
        self.consumers: list[Consumer] = []
        self._clock = clock
        self._entries: deque[Entry] = deque()
        self._next = 0

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self._entries)

    def entries(self) -> Iterable[Entry]:
        """Return all messages."""
        return tuple(self._entries)

    def enqueue(self, message: Message) -> bool:
        """Append a message."""
        now = self._clock.time()
        self._entries.append(Entry(message, self._next, now))
        self._next += 1
        self._forget_old(now)
        self.serve()
        return True

    def take(self) -> Entry | None:
        """Raise an error: a stream has no basic.get."""
        refuse_unsupported("basic.get", self.name)
        return None

    def acknowledge(self, _entry: Entry) -> None:
        """Do nothing. The consumer has credit again, and the message stays."""

    def reject(self, _entry: Entry) -> None:
        """Do nothing: for a stream, every settlement is only credit."""

    def requeue(self, _entries: Iterable[Entry], *, has_failed: bool) -> None:  # noqa: ARG002
        """Serve the consumers: for a stream, every settlement is only credit."""
        self.serve()

    def purge(self) -> int:
        """Raise an error: a stream cannot be purged."""
        refuse_unsupported("queue.purge", self.name)
        return 0

    def close(self) -> None:
        """Forget everything, because the stream is deleted."""
        self._entries.clear()
        self.lifetime.end()

    def subscribe(self, consumer: Consumer, offset: object = None) -> None:
        """Add a consumer that begins to read at an offset."""
        if not consumer.prefetch:
            raise failures.precondition_failed(
                f"consumer prefetch count is not set for stream queue '{self.name}' in vhost '/'"
            )
        consumer.next_offset = self._first_of(offset)
        self.consumers.append(consumer)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    def serve(self) -> None:
        """Deliver to every consumer what it has not read, as far as it has credit."""
        for consumer in tuple(self.consumers):
            self._serve(consumer)

    def headers(self, entry: Entry) -> dict[str, int]:
        """Return the headers that a stream adds to a delivery."""
        return {OFFSET: entry.position}

    def _serve(self, consumer: Consumer) -> None:
        while consumer.has_credit and consumer.next_offset < self._next and self._entries:
            consumer.next_offset = max(consumer.next_offset, self._entries[0].position)
            entry = self._entries[consumer.next_offset - self._entries[0].position]
            consumer.next_offset += 1
            consumer.deliver(entry)

    def _first_of(self, offset: object) -> int:
        """Return the offset to begin with. One beyond the end means the end (measured)."""
        match offset:
            case "first":
                return 0
            case "last":
                return max(0, self._next - 1)
            case Timestamp(seconds):
                later = (one.position for one in self._entries if one.arrived_at >= seconds)
                return next(later, self._next)
            case int():
                return min(offset, self._next)
        return self._next

    def _forget_old(self, now: float) -> None:
        """Drop messages that are older than `x-max-age`, except the newest one."""
        age = self.arguments.max_age_seconds
        if age is None:
            return
        while len(self._entries) > 1 and self._entries[0].arrived_at < now - age:
            self._entries.popleft()
