"""Resolve messages: confirmed, failed, or timed out. Each one exactly once."""

from collections.abc import Iterable, Sequence

from rabbitdelay.core.publish.outbox import Outbox, Pending, timeout_error
from rabbitdelay.engine.confirms.alarm import Alarm
from rabbitdelay.engine.connection import FirstConnection, logger
from rabbitdelay.engine.publish.window import Window
from rabbitdelay.engine.transport import Then


class Resolver:
    """Resolves the messages of one outbox, on the transport's thread."""

    def __init__(
        self,
        outbox: Outbox,
        window: Window,
        alarm: Alarm,
        first: FirstConnection,
        resolved: Then,
    ) -> None:
        self._outbox = outbox
        self._window = window
        self._alarm = alarm
        self._first = first
        self._resolved = resolved
        """Called after messages were resolved."""
        self.is_unanswered = False
        """Whether the broker left a message unanswered, and has answered none since."""

    def answered(self) -> None:
        """Note an answer of the broker."""
        self.is_unanswered = False

    def resolve(self, done: Sequence[Pending], error: Exception | None = None) -> None:
        """Resolve messages that are in no place of the outbox any more."""
        if not done:
            return
        for pending in done:
            pending.resolved = True
            pending.resolve(error)
        self._window.leave(len(done), sum(len(pending.message.body) for pending in done))
        self._resolved()

    def fail(self, pending: Pending, error: Exception) -> None:
        """Fail a message, wherever it is in the outbox."""
        if not pending.resolved:
            self._outbox.discard(pending)
            self.resolve([pending], error)

    def look_at_the_time(self, now: float) -> None:
        """Resolve the messages whose queue is stable by now, or whose deadline has passed."""
        self.resolve(self._outbox.stabilised(now))
        for pending in self._outbox.expire(now):
            self.is_unanswered = pending.sent
            self._time_out(pending)

    def give_up(self) -> None:
        """Time out all messages, because the client is being closed."""
        unconfirmed = list(self._outbox)
        if puts := [pending for pending in unconfirmed if not pending.is_expendable]:
            self.is_unanswered = True
            ids = ", ".join(str(pending.message.message_id) for pending in puts[:10])
            logger.warning("publisher: closed (%d puts not confirmed: %s)", len(puts), ids)
        self.time_out(unconfirmed)

    def time_out(self, unconfirmed: Iterable[Pending]) -> None:
        """Time out messages that nothing will confirm."""
        for pending in unconfirmed:
            self._time_out(pending)

    def _time_out(self, pending: Pending) -> None:
        self.fail(pending, timeout_error(pending, self._alarm.reason, self._first.error))
