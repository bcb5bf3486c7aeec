"""The stall detector: finds targets that do not answer, compared with the usual round trip.

On RabbitMQ 3.10, a channel that publishes to a queue or queries it while the queue has no leader
may wait forever for the old leader; another channel finds the new one. On both versions, a stream
whose leader's node hangs does not answer until another leader is elected.
"""

from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.core.publish.round_trip import RoundTrip

STALLED_SECONDS = 8.0
"""Seconds that the broker may take to answer on a fast connection before a retry."""
PATIENCE_FACTOR = 3.0
"""Multiple of the longest usual round trip that an answer may take on a slow connection."""
MOST_DOUBLINGS = 2
LONGEST_SECONDS = 60.0


class StallDetector:
    """Measures round trips, and finds overdue answers. All times are monotonic."""

    def __init__(self) -> None:
        self._round_trip = RoundTrip()
        self._resumed_at = 0.0
        """Monotonic time at which the broker last unblocked publishers."""

    def answered(self, seconds: float) -> None:
        """Record the round trip of an answer."""
        self._round_trip.sample(seconds)

    def resume(self, now: float) -> None:
        """Ignore the time until now, because the broker blocked publishers."""
        self._resumed_at = now

    def patience_seconds(self, failures: int = 0) -> float:
        """Return the time to wait for an answer, doubled after each consecutive failure."""
        usual = max(STALLED_SECONDS, PATIENCE_FACTOR * self._round_trip.longest_seconds)
        # Without the doubling, a broker that is only slow would receive ever more duplicates.
        return min(LONGEST_SECONDS, usual * 2.0 ** min(failures, MOST_DOUBLINGS))

    def is_overdue(self, since: float, now: float, failures: int = 0) -> bool:
        """Whether an answer that has been awaited since a monotonic time is overdue."""
        return now - max(since, self._resumed_at) > self.patience_seconds(failures)

    def stalled_lanes(self, flight: Flight, now: float, failures: int = 0) -> set[str]:
        """Return the lanes of the targets whose answers are overdue."""
        lanes: set[str] = set()
        for pending in flight:
            if not self.is_overdue(pending.sent_at, now, failures):
                break  # later ones are not overdue either
            lanes.add(pending.lane)
        return lanes
