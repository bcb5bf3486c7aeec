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
        self._low_water = max_puts * 3 // 4
        self._changed = threading.Condition(threading.Lock())

    def enter(self, deadline: float) -> bool:
        """Wait for room until the deadline on the monotonic clock; say whether there was any."""
        with self._changed:
            if self._puts >= self._max_puts or self._bytes >= self._max_bytes:
                rest = deadline - time.monotonic()
                if not self._changed.wait_for(self._has_room, max(0.0, rest)):
                    return False
            self._puts += 1
            return True

    def enter_regardless(self) -> None:
        """Enter without waiting: what is given back holds a job, and must not wait for puts."""
        with self._changed:
            self._puts += 1

    def load(self, size_bytes: int) -> None:
        """Count the bytes of a put that has entered. On the I/O thread, like `leave`."""
        self._bytes += size_bytes

    def leave(self, puts: int, size_bytes: int) -> None:
        """Give room back."""
        with self._changed:
            self._bytes -= size_bytes
            self._puts -= puts
            if self._has_room():
                self._changed.notify_all()

    def leave_unsent(self) -> None:
        """Give the room of one back that was not used after all. On any thread."""
        with self._changed:
            self._puts -= 1
            if self._has_room():
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Whether to let in who found it full. Not one by one: that is a thread switch each."""
        return self._puts <= self._low_water and self._bytes < self._max_bytes
