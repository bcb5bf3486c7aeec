"""A classic or quorum queue, as of RabbitMQ 4.3 on one node."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter

from rabbitdelay.testing.model import failures
from rabbitdelay.testing.model.arguments import QueueArguments
from rabbitdelay.testing.model.clock import Clock
from rabbitdelay.testing.model.consumer import Consumer
from rabbitdelay.testing.model.dead_letters import DeadLetters, Publish
from rabbitdelay.testing.model.lifetime import Lifetime
from rabbitdelay.testing.model.message import Entry, Message

_position = attrgetter("position")


class Queue:
    """A queue with its messages and consumers."""

    is_stream = False

    def __init__(
        self,
        name: str,
        arguments: QueueArguments,
        clock: Clock,
        publish: Publish,
        delete: Callable[[], object],
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.lifetime = Lifetime(arguments, clock, delete)
        self.consumers: list[Consumer] = []
        self._clock = clock
        self._dead_letters = DeadLetters(name, arguments, publish, clock)
        self._ready: deque[Entry] = deque()
        self._returned: deque[Entry] = deque()
        """Messages that were given back, which are delivered before all others."""
        self._arrivals = 0
        self._expiry: object = None
        self._expires_at = 0.0
        self._is_serving = False
        self._is_deleted = False

    @property
    def count(self) -> int:
        """The number of messages that are ready."""
        return len(self._ready) + len(self._returned)

    def entries(self) -> Iterable[Entry]:
        """Return the messages that are ready, the next one first."""
        return (*self._returned, *self._ready)

    # Messages

    def enqueue(self, message: Message) -> bool:
        """Take a message; return False if the queue is full and rejects it."""
        most = self.arguments.max_length
        if most is not None and self.count >= most:
            if self.arguments.rejects_when_full:
                return False
            self._drop_head()
        self._arrivals += 1
        now = self._clock.time()
        entry = Entry(message, self._arrivals, now, self._expiry_of(message, now))
        self._ready.append(entry)
        self.serve()
        return True

    def take(self) -> Entry | None:
        """Take the next message, for basic.get."""
        self._expire()
        return self._pop() if self.count else None

    def acknowledge(self, _entry: Entry) -> None:
        """Forget a message, which is settled."""

    def reject(self, entry: Entry) -> None:
        """Dead-letter a message that a consumer does not want."""
        self._dead_letters.add(entry, "rejected")

    def requeue(self, entries: Iterable[Entry], *, has_failed: bool) -> None:
        """Put messages back.

        In a quorum queue they are delivered next, in the order of their return. Since RabbitMQ 4.3
        a basic.nack does not count towards the delivery limit; a basic.reject does, and so does
        the end of a channel (measured). In a classic queue they get their old places back.
        """
        if self._is_deleted:
            return
        for entry in entries:
            entry.returns += 1
            entry.failures += has_failed
            limit = self.arguments.delivery_limit
            if limit is not None and entry.failures > limit:
                self._dead_letters.add(entry, "delivery_limit")
            elif self.arguments.type == "quorum":
                self._returned.append(entry)
            else:
                insort(self._returned, entry, key=_position)
        self.serve()

    def purge(self) -> int:
        """Drop all ready messages; return their number."""
        count = self.count
        self._ready.clear()
        self._returned.clear()
        return count

    def close(self) -> None:
        """Forget everything, because the queue is deleted."""
        self._is_deleted = True
        self.purge()
        self._dead_letters.close()
        self.lifetime.end()
        if self._expiry is not None:
            self._clock.cancel(self._expiry)

    # Consumers

    def subscribe(self, consumer: Consumer, _offset: object = None) -> None:
        """Add a consumer."""
        self.consumers.append(consumer)
        self.lifetime.used()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer. Its unacknowledged messages stay with its channel."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if not self.consumers:
            self.lifetime.left()
        self.serve()

    def serve(self) -> None:
        """Deliver messages while a consumer has credit."""
        if self._is_serving:  # a delivery never changes the queue, but a dead letter may
            return
        self._is_serving = True
        try:
            self._expire()
            while self.count and (consumer := self._next_consumer()) is not None:
                consumer.deliver(self._pop())
                self._expire()
        finally:
            self._is_serving = False
        self._watch_expiry()

    def headers(self, entry: Entry) -> dict[str, int]:
        """Return the headers that a quorum queue adds to a redelivery (measured on 4.3.6)."""
        if self.arguments.type != "quorum" or not entry.returns:
            return {}
        counts = {"x-acquired-count": entry.returns}
        return counts | ({"x-delivery-count": entry.failures} if entry.failures else {})

    def _next_consumer(self) -> Consumer | None:
        """Return the next consumer in turn that has credit; with single-active, only the first."""
        if self.arguments.has_single_active_consumer:
            first = self.consumers[0] if self.consumers else None
            return first if first is not None and first.has_credit else None
        for consumer in self.consumers:
            if consumer.has_credit:
                self.consumers.remove(consumer)
                self.consumers.append(consumer)
                return consumer
        return None

    def _pop(self) -> Entry:
        return self._returned.popleft() if self._returned else self._ready.popleft()

    def _drop_head(self) -> None:
        self._dead_letters.add(self._pop(), "maxlen")

    # Expiry. RabbitMQ looks only at the head of a queue.

    def _expiry_of(self, message: Message, now: float) -> float | None:
        ttls = (self.arguments.ttl_ms, message.expiration_ms)
        chosen = [ttl for ttl in ttls if ttl is not None]
        return now + min(chosen) / 1000 if chosen else None

    def _head(self) -> Entry | None:
        if self._returned:
            return self._returned[0]
        return self._ready[0] if self._ready else None

    def _expire(self) -> None:
        while (head := self._head()) is not None and _is_over(head, self._clock.time()):
            self._dead_letters.add(self._pop(), "expired")

    def _watch_expiry(self) -> None:
        """Set the timer for the head."""
        head = self._head()
        expires_at = None if head is None else head.expires_at
        if self._expiry is not None and self._expires_at == expires_at:
            return
        if self._expiry is not None:
            self._clock.cancel(self._expiry)
            self._expiry = None
        if expires_at is not None:
            self._expires_at = expires_at
            seconds = max(0.0, expires_at - self._clock.time())
            self._expiry = self._clock.call_later(seconds, self._expired)

    def _expired(self) -> None:
        self._expiry = None
        self.serve()


def refuse_unsupported(method: str, queue: str) -> None:
    """Raise the error for a method that a stream does not have."""
    text = f"NOT_IMPLEMENTED - {method} not supported by stream queues queue '{queue}' in vhost '/'"
    raise failures.ConnectionFailure(540, text)


def _is_over(entry: Entry, now: float) -> bool:
    return entry.expires_at is not None and entry.expires_at <= now
