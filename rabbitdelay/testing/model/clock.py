"""The time of the model, and its timers."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The only source of time of the model."""

    def time(self) -> float:
        """Return the Unix time in seconds."""

    def call_later(self, seconds: float, function: Callable[[], object]) -> object:
        """Schedule a function after a delay; return a handle for `cancel`."""

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later`."""
