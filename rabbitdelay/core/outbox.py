"""The outbox: puts on their way, from the call until the broker's confirm can be trusted.

Two rules this file owns:

1. A put is resolved once: confirmed, expired or refused. Until then it is in exactly one place:
   waiting to be sent, sent, or confirmed by a queue that has yet to settle.
2. What was sent and not resolved when a connection is lost goes again, in the same order, with
   the same id and token. A put may arrive twice, and never not at all.

Times are seconds on a monotonic clock.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rabbitdelay.core.envelope import Message
from rabbitdelay.core.topology import Part
from rabbitdelay.errors import BrokerBlocked, OutcomeUnknown
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


class Outbox:
    """The puts on their way over one connection after another."""

    def __init__(self) -> None:
        self._waiting: deque[Pending] = deque()
        self._sent: dict[int, Pending] = {}
        self._settling: list[Pending] = []
        self._next_tag = 1
        self._lowest_tag = 1

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent) + len(self._settling)

    def __iter__(self) -> Iterator[Pending]:
        yield from self._sent.values()
        yield from self._settling
        yield from self._waiting

    def add(self, pending: Pending) -> None:
        """Take a put that is to be sent."""
        self._waiting.append(pending)

    def put_back(self, *pending: Pending) -> None:
        """Take back puts that could not be sent after all, to be the next ones."""
        self._waiting.extendleft(reversed(pending))

    def discard(self, pending: Pending) -> None:
        """Forget a put, wherever it is."""
        self._drop({id(pending)})

    def next(self) -> Pending | None:
        """Hand out the next put to send."""
        while self._waiting:
            pending = self._waiting.popleft()
            if not pending.resolved:
                return pending
        return None

    def sent(self, pending: Pending, safe_at: float) -> None:
        """Note that a put went out, on a channel that counts its messages from 1."""
        pending.sent = True
        pending.safe_at = safe_at
        self._sent[self._next_tag] = pending
        self._next_tag += 1

    @property
    def oldest_sent(self) -> Pending | None:
        """The put that has waited longest for its confirm."""
        return next(iter(self._sent.values()), None)

    def confirmed(self, tag: int, *, multiple: bool, now: float) -> list[Pending]:
        """Note a confirm; return the puts that are done. The others wait for their queue."""
        done: list[Pending] = []
        for pending in self._pop(tag, multiple=multiple):
            if pending.safe_at <= now:
                done.append(pending)
            else:
                pending.settling = True
                self._settling.append(pending)
        return done

    def settled(self, now: float) -> list[Pending]:
        """Return the confirmed puts whose queues have settled by now."""
        if not self._settling:
            return []
        done = [pending for pending in self._settling if pending.safe_at <= now]
        self._settling = [pending for pending in self._settling if pending.safe_at > now]
        return done

    def refused(self, tag: int, *, multiple: bool) -> list[Pending]:
        """Note that the broker did not take these; return them, to be added again later."""
        return self._pop(tag, multiple=multiple)

    def returned(
        self, message_id: str | None, token: str, exchange: str, routing_key: str
    ) -> Pending | None:
        """Note that the broker had nowhere to put this one; its confirm will mean nothing."""
        for tag, pending in self._sent.items():
            same_job = pending.message.message_id == message_id and pending.job.token == token
            if same_job and pending.may_go_to(exchange, routing_key):
                return self._sent.pop(tag)
        return None

    def connection_lost(self) -> None:
        """Everything that is not resolved is to be sent again, in order; tags start anew."""
        again = [*self._settling, *self._sent.values()]
        self._settling.clear()
        self._sent.clear()
        self._next_tag = self._lowest_tag = 1
        self._waiting.extendleft(pending for pending in reversed(again) if not pending.resolved)
        for pending in self._waiting:
            pending.begin_again()

    def expire(self, now: float) -> list[Pending]:
        """Return the puts whose callers have stopped waiting. A confirm no longer matters."""
        late = [pending for pending in self if pending.deadline <= now and not pending.resolved]
        if late:
            self._drop({id(pending) for pending in late})
        return late

    def _pop(self, tag: int, *, multiple: bool) -> list[Pending]:
        if not multiple:
            pending = self._sent.pop(tag, None)
            self._lowest_tag += tag == self._lowest_tag
            return [] if pending is None else [pending]
        tags = range(self._lowest_tag, tag + 1)
        self._lowest_tag = max(self._lowest_tag, tag + 1)
        found = (self._sent.pop(number, None) for number in tags)
        return [pending for pending in found if pending is not None]

    def _drop(self, identities: set[int]) -> None:
        self._waiting = deque(item for item in self._waiting if id(item) not in identities)
        self._settling = [item for item in self._settling if id(item) not in identities]
        self._sent = {tag: item for tag, item in self._sent.items() if id(item) not in identities}


def timeout_error(pending: Pending, blocked: str | None, cause: Exception | None) -> OutcomeUnknown:
    """Return what the caller of a put is told that was not confirmed in time."""
    job = pending.job
    text = f"put of {job.id} ({job.topic}) was not confirmed in time: it {_fate(pending)}"
    error: OutcomeUnknown
    if blocked is not None:
        text += f"; the broker takes nothing while its alarm lasts ({blocked})"
        error = BrokerBlocked(text, sent=pending.sent)
    else:
        text += f"; {cause}" if cause else ""
        error = OutcomeUnknown(text, sent=pending.sent)
    error.__cause__ = cause
    return error


def _fate(pending: Pending) -> str:
    if pending.settling:
        return "is in a queue that is too new to survive a crash of the broker"
    return "may or may not have arrived" if pending.sent else "was never sent"
