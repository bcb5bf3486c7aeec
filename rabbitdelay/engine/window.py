"""The window: how much may be on its way at once, so that memory stays flat."""

import threading

from rabbitdelay.engine.flows import Bell, Flow, until


class Window:
    """Room for so many puts and so many bytes of body; whoever finds none waits."""

    def __init__(self, max_puts: int, max_bytes: int) -> None:
        self._max_puts = max_puts
        self._max_bytes = max_bytes
        self._puts = 0
        self._bytes = 0
        self._low_water = max_puts * 3 // 4
        self._lock = threading.Lock()
        self._room = Bell()

    def enter(self, deadline: float) -> Flow[bool]:
        """Wait for room until the deadline on the monotonic clock; say whether there was any."""
        if self.try_enter():
            return True
        return (yield from until(self._room, self._enter_late, deadline))

    def try_enter(self) -> bool:
        """Enter, if there is room."""
        with self._lock:
            has_room = self._puts < self._max_puts and self._bytes < self._max_bytes
            self._puts += has_room
            return has_room

    def enter_regardless(self) -> None:
        """Enter without waiting: what is given back holds a job, and must not wait for puts."""
        with self._lock:
            self._puts += 1

    def load(self, size_bytes: int) -> None:
        """Count the bytes of a put that has entered. On the wire's thread, like `leave`."""
        self._bytes += size_bytes

    def leave(self, puts: int, size_bytes: int) -> None:
        """Give room back."""
        with self._lock:
            self._bytes -= size_bytes
            self._puts -= puts
            has_room = self._has_room()
        if has_room:
            self._room.ring()

    def leave_unsent(self) -> None:
        """Give the room of one back that was not used after all. On any thread."""
        self.leave(1, 0)

    def _enter_late(self) -> bool:
        with self._lock:
            has_room = self._has_room()
            self._puts += has_room
            return has_room

    def _has_room(self) -> bool:
        """Whether to let in who found it full. Not one by one: that is a thread switch each."""
        return self._puts <= self._low_water and self._bytes < self._max_bytes
