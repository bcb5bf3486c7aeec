"""One message on its way to the broker, and its target.

Times are seconds on a monotonic clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.topology.objects import Part

Resolve = Callable[[Exception | None], None]
"""Called once: with None when the message is confirmed, otherwise with the error."""
FRESH_SECONDS = 1.0
"""A put that waited longer than this before it was sent is sent with the remaining delay."""


class LadderEntry(NamedTuple):
    """The route of a job: down the ladder for a delay, then to the ready queue of its topic."""

    topic: str
    delay_ms: int
    """The requested delay."""


@dataclass(frozen=True, slots=True)
class Target:
    """The route of a message that does not pass the ladder."""

    exchange: str
    routing_key: str
    part: Part | None = None
    """The queue that must exist for the message; None if it belongs to another program."""
    waits_until_stable: bool = True
    """Whether a confirm from a new queue only counts once the queue is safe."""
    may_found: bool = True
    """Whether the namespace is created for the message if it does not exist."""

    @property
    def is_stream(self) -> bool:
        """Whether the message goes to a stream of the namespace."""
        return self.part is not None and self.part.is_stream


@dataclass(slots=True)
class Pending:
    """A message on its way: a put, the copy of a retried or buried job, a delete, or a response."""

    message: Message
    route: LadderEntry | Target
    put_at: float
    """Time of the call."""
    deadline: float
    """Time at which the caller stops waiting."""
    resolve: Resolve
    label: str = ""
    """Name in errors, such as `delete of a`; empty for a put, which is named when it is needed."""
    exchange: str = ""
    """The exchange that the message was sent to; empty before it is sent."""
    lane: str = ""
    """Queue or exchange that may refuse the message or not answer; also the name of its lane."""
    sent_at: float = 0.0
    """Time at which the message was last sent."""
    closures: int = 0
    """Number of times the broker closed the channel during the flight without naming a cause."""
    is_expendable: bool = False
    """Whether the message is dropped when its client is closed, because only that client needs
    it."""
    sent: bool = False
    """Whether the message ever left this process, so that it may have arrived."""
    safe_at: float = 0.0
    """Time from which a crash cannot lose any queue on the message's route."""
    stabilising: bool = False
    """Whether the broker has confirmed the message, in a queue that is not safe yet."""
    resolved: bool = False
    _delay_ms: int | None = None

    def delay_ms(self, entry: LadderEntry, now: float) -> int:
        """Return the delay to send the message with: the requested one, minus the wait so far.

        A short wait is not subtracted, because 60 s is one hop and 59.98 s are three. The result is
        kept for the connection. Otherwise a put that waits for its queues to be declared would need
        other queues by the time they exist.
        """
        if self._delay_ms is None:
            waited = now - self.put_at
            late_ms = int(waited * 1000) if waited >= FRESH_SECONDS else 0
            self._delay_ms = max(0, entry.delay_ms - late_ms)
        return self._delay_ms

    def may_go_to(self, exchange: str, routing_key: str) -> bool:
        """Whether the message may have been sent there. A message to the ladder may go anywhere."""
        route = self.route
        if not isinstance(route, Target):
            return True
        return (route.exchange, route.routing_key) == (exchange, routing_key)

    @property
    def name(self) -> str:
        """Name in errors, such as `put of a (mail)` or `delete of a`."""
        if self.label or isinstance(self.route, Target):
            return self.label
        return f"put of {self.message.message_id} ({self.route.topic})"

    @property
    def is_for_a_stream(self) -> bool:
        """Whether the message is appended to a stream of the namespace."""
        return isinstance(self.route, Target) and self.route.is_stream

    def begin_again(self) -> None:
        """Reset the state that belongs to a lost connection."""
        self._delay_ms = None
        self.stabilising = False
