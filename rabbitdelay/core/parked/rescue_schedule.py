"""The watch over `unrouted`: when a client looks into it, and when it goes through it.

The alternate exchange parks a job in `unrouted` when a queue on its way was deleted, and the broker
confirms it: the putter is not told. Asking how many messages are there is cheap. Reading them is
not, so a client reads them only if something may have changed since it last did.

Times are seconds on a monotonic clock.
"""

from dataclasses import dataclass

SOON_SECONDS = 1.0
"""Time from the first message after a quiet while to the look at what became of it."""
BUSY_SECONDS = 5.0
"""Interval of the looks of a client that publishes."""
IDLE_SECONDS = 30.0
"""Interval of the looks of a client that publishes nothing."""
PASS_SHARE = 10
"""A client that took a while to read all messages does not look again for so many times as long."""


@dataclass(slots=True)
class UnroutedWatch:
    """What one client knows of `unrouted`."""

    looked_at: float = -IDLE_SECONDS
    """When it last asked how many messages are there."""

    left: int = 0
    """Number of messages that stayed there after the last pass."""
    is_busy: bool = False
    """Whether anything was published since the last look."""
    have_queues_changed: bool = False
    """Whether queues were made since the last pass: messages may have a way on now."""
    pass_seconds: float = 0.0
    """Duration of the last pass."""

    def look(self, count: int) -> bool:
        """Note how many messages are there; return whether to go through them."""
        is_due = count > self.left or (self.have_queues_changed and count > 0)
        self.left = min(self.left, count)
        self.have_queues_changed = False
        return is_due

    def end_pass(self, left: int, seconds: float) -> None:
        """Note what a pass has left there, and how long it took."""
        self.left, self.pass_seconds = left, seconds

    def begin_look(self, now: float) -> None:
        """Note that it asks how many messages are there."""
        self.looked_at, self.is_busy = now, False

    def next_look_at(self, now: float) -> float:
        """Return when to ask next."""
        interval = BUSY_SECONDS if self.is_busy else IDLE_SECONDS
        interval = max(interval, PASS_SHARE * self.pass_seconds)
        return max(now + SOON_SECONDS, self.looked_at + interval)
