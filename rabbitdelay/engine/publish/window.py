"""The publish window: limits the unresolved messages, so that memory use stays flat.

Only the transport's thread updates the counts, when it takes a message from the inbox and when the
message is resolved. A caller interrupted by a signal handler therefore cannot leave a wrong count
behind. Callers only check for room, and may each exceed the limit by one message.
"""

from collections import deque

from rabbitdelay.core.publish.pending import Pending
from rabbitdelay.engine.flow import Bell, Flow, until
from rabbitdelay.system_time import TimeSource


class Window:
    """Limits the number of puts and the bytes of their bodies; callers wait for room."""

    def __init__(self, max_puts: int, max_bytes: int, monotonic: TimeSource) -> None:
        self._monotonic = monotonic
        self._max_puts = max_puts
        self._max_bytes = max_bytes
        self._puts = 0
        self._bytes = 0
        self._low_water = max_puts * 3 // 4
        self._room = Bell()
        self.inbox: deque[Pending] = deque()
        """Submitted messages that the transport's thread has not taken yet."""

    @property
    def puts(self) -> int:
        """Number of unresolved messages, including those in the inbox."""
        return self._puts + len(self.inbox)

    @property
    def has_room(self) -> bool:
        """Whether there is room for one more message."""
        return self.puts < self._max_puts and self._bytes < self._max_bytes

    def wait(self, deadline: float) -> Flow[bool]:
        """Wait for room until a monotonic deadline; return whether there is room."""
        if self.has_room:
            return True
        return (yield from until(self._room, self._has_much_room, deadline, self._monotonic))

    def take_in(self) -> Pending:
        """Take and count the next message of the inbox; on the transport's thread."""
        pending = self.inbox[0]
        self._puts += 1
        self._bytes += len(pending.message.body)
        return self.inbox.popleft()

    def leave(self, puts: int, size_bytes: int) -> None:
        """Release the room of resolved messages."""
        self._bytes -= size_bytes
        self._puts -= puts
        if self._has_much_room():
            self._room.ring()

    def _has_much_room(self) -> bool:
        """Whether to wake the waiting callers. One by one, each would cost a thread switch."""
        return self.puts <= self._low_water and self._bytes < self._max_bytes
