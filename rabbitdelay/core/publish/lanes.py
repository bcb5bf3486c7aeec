"""Lanes: separate the messages to one target from the rest while that target is in trouble.

Messages normally share one channel and are sent in order. A target that refuses messages, or does
not answer, gets a lane: a queue and a channel of its own, with few messages in flight. RabbitMQ
stops reading a whole connection when a channel has too many messages in flight to one queue that
does not respond (from 32 on for a quorum queue, 256 for a stream), so a lane stays below that. When
the target confirms messages again, its lane is dissolved.

A stream always has a lane, because the leader of a stream on a hung node is only replaced after
`net_ticktime`, 60 s by default.

Times are seconds on a monotonic clock.
"""

from dataclasses import dataclass

from rabbitdelay.core.publish import backoff

TROUBLE_LIMIT = 16
"""Maximum messages in flight to a target in trouble."""
STREAM_LIMIT = 200
"""Maximum messages in flight to a stream."""
RECOVERED_COUNT = 32
"""Number of confirms without a refusal after which a target has recovered."""
FIRST_BACKOFF_SECONDS = 0.25
LONGEST_BACKOFF_SECONDS = 4.0

MAIN = ""
"""Name of the channel for all messages without a lane of their own."""
SUSPECTS = "suspects"
"""Lane of the messages that were in flight when the broker closed their channel."""
SUSPECT = "suspect"
"""Lane of the messages to which that happened twice. They are sent one by one."""


@dataclass(slots=True)
class Lane:
    """The state of one lane."""

    name: str
    limit: int = TROUBLE_LIMIT
    """Maximum number of messages in flight."""
    is_permanent: bool = False
    failures: int = 0
    """Number of refusals and stalls since the last confirm."""
    backs_off_until: float = 0.0
    confirmed: int = 0
    """Number of confirms since the last failure."""

    def refused(self, now: float, random: float) -> None:
        """Back off after a refusal.

        Refusals of messages that were in flight together count once.
        """
        if now < self.backs_off_until:
            return
        first, longest = FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS
        wait = backoff.seconds(self.failures, random, first=first, longest=longest)
        self.backs_off_until = now + wait
        self.failures += 1
        self.confirmed = 0

    def stalled(self) -> None:
        """Record that the target did not answer.

        Its messages are resent at once on another channel.
        """
        self.failures += 1
        self.confirmed = 0

    def taken(self, count: int) -> None:
        """Record confirms."""
        self.failures = 0
        self.backs_off_until = 0.0
        self.confirmed += count

    @property
    def has_recovered(self) -> bool:
        """Whether the target confirms messages like any other."""
        return self.confirmed >= RECOVERED_COUNT

    @property
    def is_for_suspects(self) -> bool:
        """Whether the lane's messages may have closed a channel. Its targets are not in trouble."""
        return self.name in (SUSPECTS, SUSPECT)


class Lanes:
    """The lanes of one connection, by name."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._lanes

    def __len__(self) -> int:
        return len(self._lanes)

    def all(self) -> tuple[Lane, ...]:
        """Return all lanes, the oldest first."""
        return tuple(self._lanes.values())

    def get(self, name: str) -> Lane | None:
        """Return a lane if it exists."""
        return self._lanes.get(name)

    def open(self, name: str, *, is_stream: bool = False) -> Lane:
        """Return a lane; make it if it does not exist."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = make(name, is_stream=is_stream)
        return lane

    def remove(self, lane: Lane) -> None:
        """Remove a lane."""
        del self._lanes[lane.name]

    def clear(self) -> None:
        """Remove all lanes, because the connection was lost."""
        self._lanes.clear()


def make(name: str, *, is_stream: bool) -> Lane:
    """Return a new lane."""
    if is_stream:
        return Lane(name, STREAM_LIMIT, is_permanent=True)
    return Lane(name, 1 if name == SUSPECT else TROUBLE_LIMIT)
