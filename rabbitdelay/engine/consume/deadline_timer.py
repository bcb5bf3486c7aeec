"""A timer for the earliest deadline of all leases."""

import threading
from collections.abc import Callable

from rabbitdelay.engine.connection import Connector


class DeadlineTimer:
    """Calls a function at the earliest of the scheduled times, on the transport's thread."""

    def __init__(self, connector: Connector, function: Callable[[], float | None]) -> None:
        self._connector = connector
        self._function = function
        """Returns the next time at which it is to be called; None if there is none."""
        self._lock = threading.RLock()
        self._at: float | None = None
        self._timer: object = None

    def schedule(self, at: float) -> None:
        """Make sure that the function is called at this time. Safe from any thread."""
        if self._is_earliest(at):  # also without the lock, because it is rare
            with self._lock:
                if self._is_earliest(at):
                    self._connector.call(self._set)
                    self._at = at  # after the call, because a signal handler may raise in it

    def _is_earliest(self, at: float) -> bool:
        earliest = self._at
        return earliest is None or at < earliest

    def _set(self) -> None:
        if self._timer is not None:
            self._connector.transport.cancel(self._timer)
            self._timer = None
        with self._lock:
            at = self._at
        if at is not None:
            rest = max(0.0, at - self._connector.monotonic())
            self._timer = self._connector.call_later(rest, self._fire)

    def _fire(self) -> None:
        self._timer = None
        with self._lock:
            self._at = None  # first, so that no time is missed that is scheduled meanwhile
        following = self._function()
        if following is not None:
            self.schedule(following)
