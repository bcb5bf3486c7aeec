"""Lanes: what goes to one target, kept apart from the rest while that target is in trouble.

Messages share one channel and go out as they come. A target that refuses messages, or that does
not answer, gets a lane: a queue and a channel of its own, with few messages in flight. RabbitMQ
stops reading a whole connection when a channel has too many messages in flight to one queue that
stands still (from 32 on for a quorum queue, 256 for a stream), so a lane stays below that.
When the target takes messages again, its lane is dissolved.

Streams have a lane at all times: the leader of a stream whose node hangs is replaced only after
`net_ticktime`, 60 s by default.

Times are seconds on a monotonic clock.
"""

from dataclasses import dataclass

from rabbitdelay.core.publish import backoff

TROUBLE_LIMIT = 16
"""Messages in flight to a target in trouble."""
STREAM_LIMIT = 200
"""Messages in flight to a stream."""
RECOVERED_COUNT = 32
"""Confirms without a refusal after which a target is no longer in trouble."""
FIRST_BACKOFF_SECONDS = 0.25
LONGEST_BACKOFF_SECONDS = 4.0

SUSPECTS = "suspects"
"""The lane of messages that were in flight when the broker closed their channel."""
SUSPECT = "suspect"
"""The lane of messages for which that happened twice. They are sent one by one."""


@dataclass(slots=True)
class Lane:
    """The state of one lane."""

    name: str
    limit: int = TROUBLE_LIMIT
    """Messages in flight at most."""
    is_permanent: bool = False
    failures: int = 0
    """Refusals and stalls since the last confirm."""
    held_until: float = 0.0
    confirmed: int = 0
    """Confirms since the last failure."""

    def refused(self, now: float, random: float) -> None:
        """Back off after a refusal. Refusals of what was sent at the same time count once."""
        if now < self.held_until:
            return
        first, longest = FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS
        pause = backoff.seconds(self.failures, random, first=first, longest=longest)
        self.held_until = now + pause
        self.failures += 1
        self.confirmed = 0

    def stalled(self) -> None:
        """Note that the target did not answer. The messages go again on another channel at once."""
        self.failures += 1
        self.confirmed = 0

    def taken(self, count: int) -> None:
        """Note confirms."""
        self.failures = 0
        self.held_until = 0.0
        self.confirmed += count

    @property
    def has_recovered(self) -> bool:
        """Whether the target takes messages as any other does."""
        return self.confirmed >= RECOVERED_COUNT


def make(name: str, *, is_stream: bool) -> Lane:
    """Return a new lane."""
    if is_stream:
        return Lane(name, STREAM_LIMIT, is_permanent=True)
    return Lane(name, 1 if name == SUSPECT else TROUBLE_LIMIT)
