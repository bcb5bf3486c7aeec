"""The stall detector: tells which targets do not answer, by how long answers take otherwise.

A channel of RabbitMQ 3.10 that sends to a queue, or asks for one, while the queue has no leader may
wait for ever for the one that died; another channel finds the new leader. On both versions a stream
whose leader's node hangs does not answer until another leader is chosen.
"""

from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.core.publish.round_trip import RoundTrip

STALLED_SECONDS = 8.0
"""How long the broker may take to answer on a fast wire before it is asked again."""
PATIENCE_FACTOR = 3.0
"""How much longer than the longest usual round trip it may take on a slow one."""
MOST_DOUBLINGS = 2
LONGEST_SECONDS = 60.0


class StallDetector:
    """Measures answers, and says what waits for too long. Times are on the monotonic clock."""

    def __init__(self) -> None:
        self._round_trip = RoundTrip()
        self._resumed_at = 0.0
        """When the broker last began to take messages again after an alarm."""

    def answered(self, seconds: float) -> None:
        """Learn from an answer how long answers take."""
        self._round_trip.sample(seconds)

    def resume(self, now: float) -> None:
        """Do not count the time until now: the broker took no messages."""
        self._resumed_at = now

    def patience_seconds(self, failures: int = 0) -> float:
        """How long to wait for an answer; twice as long after each failure in a row."""
        usual = max(STALLED_SECONDS, PATIENCE_FACTOR * self._round_trip.longest_seconds)
        # A broker that is only slow must not get the same messages more and more often.
        return min(LONGEST_SECONDS, usual * 2.0 ** min(failures, MOST_DOUBLINGS))

    def is_overdue(self, since: float, now: float, failures: int = 0) -> bool:
        """Whether an answer that is awaited since then is overdue."""
        return now - max(since, self._resumed_at) > self.patience_seconds(failures)

    def stalled_lanes(self, flight: Flight, now: float, failures: int = 0) -> set[str]:
        """Return the targets that have not answered for too long."""
        lanes: set[str] = set()
        for pending in flight:
            if not self.is_overdue(pending.sent_at, now, failures):
                break  # those behind it were sent later
            lanes.add(pending.lane)
        return lanes
