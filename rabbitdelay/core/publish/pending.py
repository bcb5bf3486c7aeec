"""Pending: a message on its way to the broker, and where it goes.

Times are seconds on a monotonic clock.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.models import Job

FRESH_SECONDS = 1.0
"""A put that waited longer than this before it was sent goes with the rest of its delay."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message goes that does not go down the ladder."""

    exchange: str
    routing_key: str
    part: Part | None = None
    """The queue that must be there for it; None when that is somebody else's."""
    settles: bool = True
    """Whether a confirm from a queue that was made just now does not count yet."""
    may_found: bool = True
    """Whether the namespace is made for it, if there is none."""

    @property
    def is_stream(self) -> bool:
        """Whether it goes to a stream of ours."""
        return self.part is not None and self.part.is_stream


@dataclass(slots=True)
class Pending:
    """A message on its way: a put, a job that is given back or buried, or a response."""

    job: Job
    message: Message
    asked_ms: int
    """The delay that was asked for."""
    put_at: float
    """When it was called."""
    deadline: float
    """When its caller stops waiting."""
    resolve: Callable[["Pending", Exception | None], None]
    """Told once: with None when confirmed, else with the error."""
    position: int = 0
    """Its place among many that were put together."""
    target: Target | None = None
    """None when it goes down the ladder."""
    exchange: str = ""
    """Where it was sent, once it was."""
    lane: str = ""
    """The queue or exchange that it goes to, by which messages in trouble are kept apart."""
    sent_at: float = 0.0
    """When it was last sent."""
    closures: int = 0
    """How often the broker closed the channel while it was in flight, without naming a culprit."""
    is_expendable: bool = False
    """Whether it is given up when its client is closed: it is of no use to another."""
    what: str | None = None
    """What it is, for errors, such as `delete of a`; None for a put."""
    sent: bool = False
    """Whether it ever left this process: then it may have arrived."""
    safe_at: float = 0.0
    """When the youngest queue on its path will have settled."""
    settling: bool = False
    """Whether the broker has confirmed it, in a queue that has yet to settle."""
    resolved: bool = False
    _delay_ms: int | None = None

    def delay_ms(self, now: float) -> int:
        """The delay to send it with: what was asked, less what it already waited here.

        A short wait is not taken off: 60 s is one hop, 59.98 s are three. And it is worked out
        once for each connection: else a put that waits for its queues to be made would need other
        queues by the time that they are.
        """
        if self._delay_ms is None:
            waited = now - self.put_at
            late_ms = int(waited * 1000) if waited >= FRESH_SECONDS else 0
            self._delay_ms = max(0, self.asked_ms - late_ms)
        return self._delay_ms

    def may_go_to(self, exchange: str, routing_key: str) -> bool:
        """Whether it goes there, as far as that is fixed."""
        target = self.target
        return target is None or (target.exchange, target.routing_key) == (exchange, routing_key)

    def begin_again(self) -> None:
        """Forget how it was sent over a connection that is lost."""
        self._delay_ms = None
        self.settling = False
