"""The pace of time: that of the machine's clock, or one that moves only on request."""

import time
from typing import Protocol


class Pace(Protocol):
    """The interface to a clock and its pace."""

    is_virtual: bool
    late_seconds: float
    """Delay of timers that may be late, in seconds."""

    def time(self) -> float:
        """Return the Unix time in seconds."""

    def monotonic(self) -> float:
        """Return the seconds on a clock that is never set."""

    def move_to(self, time: float) -> None:
        """Set the time, which never goes back."""

    def real_seconds_until(self, due: float) -> float | None:
        """Return how long to wait for a time; None if it does not come by waiting."""


class RealPace:
    """Time passes by itself."""

    is_virtual = False
    late_seconds = 0.0

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def time(self) -> float:
        """Return the Unix time in seconds."""
        return time.monotonic() + self._offset

    def monotonic(self) -> float:
        """Return the seconds on the monotonic clock of the machine."""
        return time.monotonic()

    def move_to(self, time: float) -> None:
        """Do nothing."""

    def real_seconds_until(self, due: float) -> float | None:
        """Return how long to wait for a time."""
        return max(0.0, due - self.time())


class VirtualPace:
    """Time stands still until it is moved."""

    is_virtual = True
    late_seconds = 600.0

    def __init__(self, start: float) -> None:
        self._now = start

    def time(self) -> float:
        """Return the Unix time in seconds."""
        return self._now

    def monotonic(self) -> float:
        """Return the same time, which is never set back."""
        return self._now

    def move_to(self, time: float) -> None:
        """Set the time, which never goes back."""
        self._now = max(self._now, time)

    def real_seconds_until(self, due: float) -> float | None:  # noqa: ARG002 - it does not matter
        """Return None, because no time comes by waiting."""
        return None
