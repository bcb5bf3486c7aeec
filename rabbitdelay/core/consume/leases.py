"""Leases: who holds which job until when, and what is to be done with its message.

Three rules this file owns:

1. A lease ends once: the job is finished, or given back (released, buried, timed out), or lost
   with its connection. Never two of them, never none.
2. What is given back is acked only after the broker has confirmed its copy. Until then the lease
   is *leaving*: nobody can finish it any more, and it is not gone.
3. From the deadline on a finish is refused, whether or not anybody has called `expire` meanwhile.

Times are seconds on a monotonic clock.
"""

import heapq
import math
from dataclasses import dataclass, field
from enum import Enum

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.jobs.states import NEXT, Event, State
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.errors import LeaseLost
from rabbitdelay.models import DEFAULT_TTR_MS, Job

_SPARE_DEADLINES = 1_000
"""So many deadlines of jobs that are settled may be kept: less work than to find them each time."""

Identity = tuple[str, str, str, int]
Key = tuple[int, int]
"""The channel and the tag of a message that is held."""


class Do(Enum):
    """What is to be done with the message of a lease."""

    NOTHING = "nothing"
    """Its connection is gone, and the broker has given it to somebody else."""
    ACK = "ack"
    NACK = "nack"
    """Give it back as it is: its copy could not be published."""
    DEAD_LETTER = "dead-letter"
    """Let the broker bury it, as it is: its copy could not be published."""


@dataclass(slots=True, eq=False)
class Lease:
    """A job that this process holds, unacked."""

    job: Job
    message: Message
    """As it came: what is given back is a copy of it."""
    channel: int
    tag: int
    received_ms: int = 0
    """When its message came, in milliseconds since 1970, by this machine's clock: for display."""
    redeliveries: int = 0
    """How often the broker has handed it out before, by its own count."""
    state: State = State.READY
    """READY while it is only prefetched: nobody works on it, and its ttr has not begun."""
    deadline: float = math.inf
    leaving: Event | None = None
    """How it is being given back, while its copy is not confirmed."""
    ended_by: Event | None = None
    default_max_attempts: int | None = None
    """The topic's attempts, for a job that does not set its own."""
    received_at: float | None = None
    """When its message came, on the monotonic clock."""
    fate: Fate | None = None
    """What follows the attempt, once it has been given back."""
    identity: Identity = field(init=False)
    """What tells this attempt from every other, in any process."""

    def __post_init__(self) -> None:
        job = self.job
        self.identity = (job.topic, job.id, job.token, job.attempt)

    @property
    def ttr_seconds(self) -> float:
        """How long it may be held."""
        ttr_ms = self.job.ttr_ms
        return (DEFAULT_TTR_MS if ttr_ms is None else ttr_ms) / 1000

    @property
    def lateness_ms(self) -> int:
        """How long after its time it came; never negative, whatever the clocks say."""
        return max(0, self.received_ms - self.job.due_ms)

    def held_ms(self, now: float) -> int:
        """How long this process has had its message."""
        return 0 if self.received_at is None else max(0, int((now - self.received_at) * 1000))

    @property
    def is_timed_out(self) -> bool:
        """Whether it was taken from its holder at its deadline."""
        return Event.TIMEOUT in (self.leaving, self.ended_by)

    @property
    def was_reserved(self) -> bool:
        """Whether it was ever handed out."""
        return self.deadline != math.inf

    @property
    def is_over(self) -> bool:
        """Whether nobody here can settle it any more."""
        return self.state is not State.RESERVED or self.leaving is not None


class Leases:
    """The leases of one connection after another."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], Lease] = {}
        # By channel and tag: a job that was settled is not kept here until its deadline.
        self._deadlines: list[tuple[float, Key]] = []

    def __len__(self) -> int:
        return len(self._held)

    def held(self) -> list[Lease]:
        """Everything that is held, handed out or not."""
        return list(self._held.values())

    def take(self, lease: Lease) -> None:
        """Note a message that has come in; nobody works on it yet."""
        self._held[lease.channel, lease.tag] = lease

    def reserve(self, lease: Lease, now: float) -> None:
        """Hand it out: its ttr begins."""
        lease.state = self._after(lease, Event.POP)
        self._set_deadline(lease, now + lease.ttr_seconds)

    def touch(self, lease: Lease, now: float) -> float:
        """Let its ttr begin again; return the new deadline."""
        self._after(lease, Event.TOUCH, now)
        self._set_deadline(lease, now + lease.ttr_seconds)
        return lease.deadline

    def finish(self, lease: Lease, now: float) -> Do:
        """End it for good."""
        self._end(lease, self._after(lease, Event.FINISH, now), Event.FINISH)
        return Do.ACK

    def leave(self, lease: Lease, event: Event, now: float) -> None:
        """Begin to give it back by RELEASE or BURY; its copy is to be published."""
        self._after(lease, event, now)
        lease.leaving = event

    def unread(self, lease: Lease) -> None:
        """Begin to bury what was never handed out: it is no job."""
        lease.state, lease.leaving = State.RESERVED, Event.BURY

    def expire(self, now: float) -> list[Lease]:
        """Begin to give back what has reached its deadline; a copy of each is to be published."""
        expired: list[Lease] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            lease = self._due(heapq.heappop(self._deadlines))
            if lease is not None:
                lease.leaving = Event.TIMEOUT
                expired.append(lease)
        return expired

    def next_expiry(self) -> float | None:
        """When to call `expire` next."""
        while self._deadlines:
            if self._due(self._deadlines[0]) is not None:
                return self._deadlines[0][0]
            heapq.heappop(self._deadlines)
        return None

    def copied(self, lease: Lease) -> Do:
        """The copy of what is leaving was confirmed."""
        return self._left(lease, Do.ACK)

    def not_copied(self, lease: Lease, do: Do = Do.NACK) -> Do:
        """The copy of what is leaving could not be published, or nobody knows."""
        return self._left(lease, do)

    def is_any_leaving(self) -> bool:
        """Whether the copy of anything is on its way."""
        return any(lease.leaving is not None for lease in self._held.values())

    def hand_back(self, lease: Lease) -> Do:
        """Give it back as it is, when nobody has worked on it or its worker stops."""
        if (lease.channel, lease.tag) not in self._held or lease.leaving is not None:
            return Do.NOTHING
        self._end(lease, State.READY, Event.LOSE)
        return Do.NACK

    def delete(self, lease: Lease) -> Do:
        """It was deleted by its id: end it for good, handed out or not."""
        if lease.leaving is not None or (lease.channel, lease.tag) not in self._held:
            return Do.NOTHING
        self._end(lease, State.DELETED, Event.DELETE)
        return Do.ACK

    def forget(self, lease: Lease) -> None:
        """Its message is settled by what came before it."""
        self._held.pop((lease.channel, lease.tag), None)

    def lose(self, channel: int | None = None) -> list[Lease]:
        """The connection, or one channel, is gone: the broker gives its jobs to somebody else."""
        lost = [lease for lease in self._held.values() if channel in (None, lease.channel)]
        for lease in lost:
            self._end(lease, State.READY, Event.LOSE)
        return lost

    def adopt(self, lease: Lease, again: Lease, deadline: float | None = None) -> None:
        """Go on with a lease that was lost, by its message that the broker handed out again.

        Its deadline stays, unless it is given another: whoever works on it has not become any
        faster.
        """
        lease.channel, lease.tag, lease.redeliveries = again.channel, again.tag, again.redeliveries
        lease.state, lease.ended_by, lease.leaving = State.RESERVED, None, None
        lease.fate = None
        self._held[lease.channel, lease.tag] = lease
        self._set_deadline(lease, lease.deadline if deadline is None else deadline)

    # Pieces

    def _after(self, lease: Lease, event: Event, now: float = -math.inf) -> State:
        following = NEXT[lease.state][event]
        if following is None or lease.leaving is not None or now >= lease.deadline:
            raise LeaseLost(f"{event.value}: {_why(lease)}")
        return following

    def _left(self, lease: Lease, do: Do) -> Do:
        event = lease.leaving
        if event is None:
            return Do.NOTHING  # the connection was lost meanwhile
        following = NEXT[State.RESERVED][event]
        assert following is not None
        self._end(lease, following, event)
        return do

    def _end(self, lease: Lease, state: State, event: Event) -> None:
        lease.state, lease.leaving, lease.ended_by = state, None, event
        self._held.pop((lease.channel, lease.tag), None)

    def _set_deadline(self, lease: Lease, deadline: float) -> None:
        lease.deadline = deadline
        if len(self._deadlines) > 2 * len(self._held) + _SPARE_DEADLINES:
            self._forget_old_deadlines()
        heapq.heappush(self._deadlines, (deadline, (lease.channel, lease.tag)))

    def _forget_old_deadlines(self) -> None:
        """Let go of the deadlines of jobs that were settled long before them."""
        self._deadlines = [entry for entry in self._deadlines if self._due(entry) is not None]
        heapq.heapify(self._deadlines)

    def _due(self, entry: tuple[float, Key]) -> Lease | None:
        """The lease that a deadline is of, if it is held and has not got another since."""
        deadline, key = entry
        lease = self._held.get(key)
        return lease if lease and lease.deadline == deadline and not lease.is_over else None


_WHY = {
    Event.FINISH: "was finished before",
    Event.RELEASE: "was released before",
    Event.BURY: "was buried before",
    Event.TIMEOUT: "was given back when its ttr had passed",
    Event.DELETE: "was deleted",
    Event.LOSE: "went back to the broker when its connection was lost or closed",
}


def _why(lease: Lease) -> str:
    job = f"job {lease.job.id} ({lease.job.topic})"
    event = lease.leaving or lease.ended_by
    if event is not None:
        return f"{job} {_WHY[event]}"
    if lease.state is State.RESERVED:
        return f"{job} {_WHY[Event.TIMEOUT]}"
    return f"{job} is {lease.state.value}"
