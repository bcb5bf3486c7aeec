"""Detect that all queues are empty, for a worker that runs until then."""

from collections.abc import Callable, Sequence

from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import Subscription

QUIET_SECONDS = 0.2
"""Time without an event before the queues are checked."""


class Drain:
    """Checks the queues when nothing has happened for a moment; on the transport's thread."""

    def __init__(
        self,
        consumer: Consumer,
        subscriptions: Callable[[], Sequence[Subscription]],
        is_busy: Callable[[], bool],
        when_empty: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._subscriptions = subscriptions
        self._is_busy = is_busy
        self._when_empty = when_empty
        self._heard_at = 0.0
        self._is_listening = False

    def heard(self) -> None:
        """Note an event, which postpones the check."""
        self._heard_at = self._consumer.monotonic()
        self._listen()

    def _listen(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            self._consumer.call_later(QUIET_SECONDS, self._look)

    def _look(self) -> None:
        self._is_listening = False
        if self._consumer.monotonic() - self._heard_at < QUIET_SECONDS * 0.9:
            self._listen()
        elif not self._is_busy() and all(one.is_open for one in self._subscriptions()):
            self._ask(list(self._subscriptions()))  # otherwise the end of a job is an event

    def _ask(self, rest: list[Subscription]) -> None:
        """Count one queue after the other; an event in between starts the check again."""
        if self._is_busy():
            return
        if not rest:
            self._when_empty()
            return
        subscription = rest.pop()
        subscription.count(lambda ready: self.heard() if ready else self._ask(rest))
