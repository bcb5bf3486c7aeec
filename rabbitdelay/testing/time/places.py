"""Places in which callbacks run: the thread of the timeline, or an event loop."""

import asyncio
import threading
from collections.abc import Callable

Act = Callable[[], object]


class ThreadPlace:
    """Runs callbacks on the thread of the timeline."""

    is_gone = False

    def __init__(self) -> None:
        self._thread: int | None = None

    def run(self, act: Act) -> None:
        """Run a callback on this thread."""
        self._thread = threading.get_ident()
        try:
            act()
        finally:
            self._thread = None

    def is_here(self) -> bool:
        """Whether the caller is a callback that runs in this place."""
        return self._thread == threading.get_ident()


class LoopPlace:
    """Runs callbacks on the event loop that is running when it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def run(self, act: Act, done: Act) -> None:
        """Schedule a callback on the event loop, from any thread."""

        def run() -> None:
            try:
                act()
            finally:
                done()

        try:
            self.loop.call_soon_threadsafe(run)
        except RuntimeError:  # the loop was closed
            done()

    def is_here(self) -> bool:
        """Whether the caller is on the thread of the event loop."""
        return self._thread == threading.get_ident()

    @property
    def is_gone(self) -> bool:
        """Whether the event loop was closed."""
        return self.loop.is_closed()


Place = ThreadPlace | LoopPlace
"""Runs the callbacks of one transport, one after the other."""
