"""The window: how much may be on its way at once, so that memory stays flat."""

import threading
import time


class Window:
    """Room for so many puts and so many bytes of body; whoever finds none waits."""

    def __init__(self, max_puts: int, max_bytes: int) -> None:
        self._max_puts = max_puts
        self._max_bytes = max_bytes
        self._puts = 0
        self._bytes = 0
        self._changed = threading.Condition(threading.Lock())

    def enter(self, deadline: float) -> bool:
        """Wait for room until the deadline on the monotonic clock; say whether there was any."""
        with self._changed:
            while self._puts >= self._max_puts or self._bytes >= self._max_bytes:
                rest = deadline - time.monotonic()
                if rest <= 0 or not self._changed.wait(rest):
                    return False
            self._puts += 1
            return True

    def load(self, size_bytes: int) -> None:
        """Count the bytes of a put that has entered; the last one in may go over the limit."""
        with self._changed:
            self._bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """Give the room back."""
        with self._changed:
            self._puts -= 1
            self._bytes -= size_bytes
            self._changed.notify()
