"""The schedule by which a client counts the messages in `unrouted`, and routes them again.

When a queue on a job's route was deleted, the alternate exchange moves the job to `unrouted`, and
the broker confirms it, so the publisher does not notice. Counting the messages is cheap. Reading
them is not, so a client reads them only if something may have changed since its last pass.

Times are seconds on a monotonic clock.
"""

from dataclasses import dataclass

SOON_SECONDS = 1.0
"""Time from the first message after an idle period to the next count."""
BUSY_SECONDS = 5.0
"""Interval between counts for a client that publishes."""
IDLE_SECONDS = 30.0
"""Interval between counts for a client that publishes nothing."""
PASS_SHARE = 10
"""A client waits at least this many times the duration of its last pass before the next count."""


@dataclass(slots=True)
class UnroutedWatch:
    """One client's knowledge of `unrouted`."""

    looked_at: float = -IDLE_SECONDS
    """Time of the last count."""

    left: int = 0
    """Number of messages that remained after the last pass."""
    is_busy: bool = False
    """Whether anything was published since the last count."""
    have_queues_changed: bool = False
    """Whether queues were created since the last pass, so that messages may be routable now."""
    pass_seconds: float = 0.0
    """Duration of the last pass."""

    def look(self, count: int) -> bool:
        """Record the number of messages; return whether a pass is worthwhile."""
        is_due = count > self.left or (self.have_queues_changed and count > 0)
        self.left = min(self.left, count)
        self.have_queues_changed = False
        return is_due

    def end_pass(self, left: int, seconds: float) -> None:
        """Record how many messages a pass has left, and how long it took."""
        self.left, self.pass_seconds = left, seconds

    def begin_look(self, now: float) -> None:
        """Record that a count begins."""
        self.looked_at, self.is_busy = now, False

    def next_look_at(self, now: float) -> float:
        """Return the time of the next count."""
        interval = BUSY_SECONDS if self.is_busy else IDLE_SECONDS
        interval = max(interval, PASS_SHARE * self.pass_seconds)
        return max(now + SOON_SECONDS, self.looked_at + interval)
