"""Close a publisher: wait for what is unconfirmed, then close its connection."""

from rabbitdelay.core.publish.outbox import Outbox
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.confirms.alarm import Alarm
from rabbitdelay.engine.confirms.resolver import Resolver
from rabbitdelay.engine.connection import Connector


class ClosingFlush:
    """Waits for the last confirms of a publisher, on the transport's thread."""

    def __init__(
        self, connector: Connector, outbox: Outbox, resolver: Resolver, alarm: Alarm
    ) -> None:
        self._connector = connector
        self._outbox = outbox
        self._resolver = resolver
        self._alarm = alarm
        self._deadline: float | None = None
        """Monotonic time of the close; None before the close begins and after it."""

    def begin(self, flush_seconds: float) -> None:
        """Close when everything is confirmed, at the latest after `flush_seconds`."""
        self._deadline = self._connector.monotonic() + flush_seconds
        self._connector.call_later(flush_seconds, self.close_if_done)
        self.close_if_done()

    def close_if_done(self) -> None:
        """Close, if a close has begun and has nothing more to wait for."""
        if self._deadline is None or self._has_to_wait(self._deadline):
            return
        self._deadline = None
        self._resolver.give_up()
        is_silent = self._alarm.reason is not None or self._resolver.is_unanswered
        self._connector.close(
            process_lifetime.UNANSWERED_SECONDS if is_silent else process_lifetime.CLOSE_SECONDS
        )

    def _has_to_wait(self, deadline: float) -> bool:
        awaited = (pending for pending in self._outbox if not pending.is_expendable)
        return next(awaited, None) is not None and self._connector.monotonic() < deadline
