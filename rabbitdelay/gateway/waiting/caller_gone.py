"""An event for the end of a request's connection, which also calls back."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CallerGone(asyncio.Event):
    """Set when the client of a request has closed its connection."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Set the event, and call back. Nothing happens if it is set already."""
        if not self.is_set():
            super().set()
            for callback in tuple(self._callbacks):
                callback()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call back inside the block when the client is gone, at once if it is already."""
        self._callbacks.append(callback)
        try:
            if self.is_set():
                callback()
            yield
        finally:
            self._callbacks.remove(callback)
