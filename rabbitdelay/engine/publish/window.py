"""The window: how much may be on its way at once, so that memory stays flat.

Only the transport's thread counts, when it takes a message in and when the message is resolved. A
caller that is interrupted by a signal handler can therefore not leave a wrong count behind. Callers
look whether there is room, and may overshoot by one message each.
"""

from collections import deque

from rabbitdelay.core.publish.pending import Pending
from rabbitdelay.engine.flow import Bell, Flow, until


class Window:
    """Room for so many puts and so many bytes of body; callers wait while there is none."""

    def __init__(self, max_puts: int, max_bytes: int) -> None:
        self._max_puts = max_puts
        self._max_bytes = max_bytes
        self._puts = 0
        self._bytes = 0
        self._low_water = max_puts * 3 // 4
        self._room = Bell()
        self.inbox: deque[Pending] = deque()
        """Messages that callers have handed over, and the transport's thread has not taken in."""

    @property
    def puts(self) -> int:
        """Number of messages on their way."""
        return self._puts + len(self.inbox)

    @property
    def has_room(self) -> bool:
        """Whether one more message may be handed over."""
        return self.puts < self._max_puts and self._bytes < self._max_bytes

    def wait(self, deadline: float) -> Flow[bool]:
        """Wait for room until the deadline on the monotonic clock; return whether there is any."""
        if self.has_room:
            return True
        return (yield from until(self._room, self._has_much_room, deadline))

    def take_in(self) -> Pending:
        """Return and count the next message of the inbox, on the transport's thread."""
        pending = self.inbox[0]
        self._puts += 1
        self._bytes += len(pending.message.body)
        return self.inbox.popleft()

    def leave(self, puts: int, size_bytes: int) -> None:
        """Give room back."""
        self._bytes -= size_bytes
        self._puts -= puts
        if self._has_much_room():
            self._room.ring()

    def _has_much_room(self) -> bool:
        """Whether to admit callers that found it full. One by one would be a thread switch each."""
        return self.puts <= self._low_water and self._bytes < self._max_bytes
