"""Publishing of dead-lettered messages to the dead-letter exchange of their queue."""

from collections import deque
from collections.abc import Callable

from rabbitdelay.testing.model.arguments import QueueArguments
from rabbitdelay.testing.model.clock import Clock
from rabbitdelay.testing.model.deaths import Reason
from rabbitdelay.testing.model.message import Entry, Message

Publish = Callable[[Message], bool]
"""Publishes a dead-lettered message; returns whether a queue has taken it."""
WINDOW = 32
"""Messages that the dead-letter worker of a quorum queue has in flight (rabbit_fifo_dlx_worker)."""
RETRY_SECONDS = 180.0
"""Interval at which that worker publishes messages again that no queue has taken."""


class DeadLetters:
    """The dead letters of one queue."""

    def __init__(
        self, queue: str, arguments: QueueArguments, publish: Publish, clock: Clock
    ) -> None:
        self._queue = queue
        self._arguments = arguments
        self._publish = publish
        self._clock = clock
        self._waiting: deque[Message] = deque()
        self._untaken: list[Message] = []
        self._timer: object = None

    def add(self, entry: Entry, reason: Reason) -> None:
        """Dead-letter a message. Without a dead-letter exchange it is dropped."""
        exchange = self._arguments.dead_letter_exchange
        if exchange is None:
            return
        key, now = self._arguments.dead_letter_key, int(self._clock.time())
        dead = entry.message.dead(self._queue, reason, now, exchange, key)
        if self._arguments.is_at_least_once:
            self._waiting.append(dead)
            self._pump()
        else:
            self._publish(dead)

    def close(self) -> None:
        """Forget all messages, because the queue is deleted."""
        self._waiting.clear()
        self._untaken.clear()
        if self._timer is not None:
            self._clock.cancel(self._timer)

    def _pump(self) -> None:
        """Publish what waits. A full window of untaken messages stops all others."""
        while self._waiting and len(self._untaken) < WINDOW:
            message = self._waiting.popleft()
            if not self._publish(message):
                self._untaken.append(message)
        if self._untaken and self._timer is None:
            self._timer = self._clock.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._timer = None
        again, self._untaken = self._untaken, []
        self._waiting.extendleft(reversed(again))
        self._pump()
