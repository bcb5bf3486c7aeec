"""Leases: which jobs are reserved, until when, and how each one's message is settled.

This file owns three rules:

1. A lease ends exactly once: the job is finished, given up (released, buried, timed out), or lost
   with its connection.
2. The message of a job that is given up is acknowledged only after the broker has confirmed its
   copy. Until then the lease is *leaving*: it can no longer be finished, but still exists.
3. A finish after the deadline is refused, even if `expire` has not been called in the meantime.

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
"""Number of stale deadlines that may be kept, which is cheaper than removing each one at once."""

Identity = tuple[str, str, str, int]
Key = tuple[int, int]
"""The channel and the delivery tag of a message."""


class Do(Enum):
    """The frame by which a lease's message is to be settled."""

    NOTHING = "nothing"
    """Its connection is lost, and the broker has requeued it."""
    ACK = "ack"
    NACK = "nack"
    """Requeue it, because its copy could not be published."""
    DEAD_LETTER = "dead-letter"
    """Have the broker bury the job, because its copy could not be published."""


@dataclass(slots=True, eq=False)
class Lease:
    """A job whose message this process has received and not settled."""

    job: Job
    message: Message
    """The message as received, from which copies are made."""
    channel: int
    tag: int
    received_ms: int = 0
    """Time of the delivery, in milliseconds since 1970, by this machine's clock; for display."""
    redeliveries: int = 0
    """Number of earlier deliveries, as counted by the broker."""
    state: State = State.READY
    """READY while the job is only prefetched: it is not being processed, and its ttr has not
    started."""
    deadline: float = math.inf
    leaving: Event | None = None
    """The event by which the job is being given up, until its copy is confirmed."""
    ended_by: Event | None = None
    default_max_attempts: int | None = None
    """Maximum attempts set by the topic, for a job that does not set its own."""
    received_at: float | None = None
    """Time of the delivery on the monotonic clock."""
    fate: Fate | None = None
    """The fate of the job after the attempt; set once the job has been given up."""
    identity: Identity = field(init=False)
    """Identifies this attempt in any process."""

    def __post_init__(self) -> None:
        job = self.job
        self.identity = (job.topic, job.id, job.token, job.attempt)

    @property
    def ttr_seconds(self) -> float:
        """Time to run, in seconds."""
        ttr_ms = self.job.ttr_ms
        return (DEFAULT_TTR_MS if ttr_ms is None else ttr_ms) / 1000

    @property
    def lateness_ms(self) -> int:
        """Time from due time to delivery, in milliseconds; 0 if the clocks disagree."""
        return max(0, self.received_ms - self.job.due_ms)

    def age_ms(self, now: float) -> int:
        """Return the time since the message was received, in milliseconds."""
        return 0 if self.received_at is None else max(0, int((now - self.received_at) * 1000))

    @property
    def is_timed_out(self) -> bool:
        """Whether the job was taken from its handler at the deadline."""
        return Event.TIMEOUT in (self.leaving, self.ended_by)

    def has_exceeded_ttr(self, now: float) -> bool:
        """Whether the job timed out, or is about to because nothing settled it in time."""
        return self.is_timed_out or (not self.is_over and now >= self.deadline)

    @property
    def was_reserved(self) -> bool:
        """Whether the job was ever reserved rather than only prefetched."""
        return self.deadline != math.inf

    @property
    def is_over(self) -> bool:
        """Whether this process can no longer settle the job."""
        return self.state is not State.RESERVED or self.leaving is not None


class Leases:
    """The leases of a consumer, over one connection after another."""

    def __init__(self) -> None:
        self._leases: dict[tuple[int, int], Lease] = {}
        # Keys rather than leases, so that a settled job is not kept until its deadline.
        self._deadlines: list[tuple[float, Key]] = []

    def __len__(self) -> int:
        return len(self._leases)

    def all(self) -> list[Lease]:
        """Return all leases, including jobs that are only prefetched."""
        return list(self._leases.values())

    def holds(self, lease: Lease) -> bool:
        """Whether a lease exists. Another one may have its channel and tag on a new connection."""
        return self._leases.get((lease.channel, lease.tag)) is lease

    def take(self, lease: Lease) -> None:
        """Add a job that was delivered and is not being processed yet."""
        self._leases[lease.channel, lease.tag] = lease

    def reserve(self, lease: Lease, now: float) -> None:
        """Reserve a job, which starts its ttr."""
        lease.state = self._after(lease, Event.POP)
        self._set_deadline(lease, now + lease.ttr_seconds)

    def touch(self, lease: Lease, now: float) -> float:
        """Restart the ttr; return the new deadline."""
        self._after(lease, Event.TOUCH, now)
        self._set_deadline(lease, now + lease.ttr_seconds)
        return lease.deadline

    def finish(self, lease: Lease, now: float) -> Do:
        """End the lease of a job that is done."""
        self._end(lease, self._after(lease, Event.FINISH, now), Event.FINISH)
        return Do.ACK

    def leave(self, lease: Lease, event: Event, now: float) -> None:
        """Start to give up a job by RELEASE, HAND_BACK or BURY; its copy is to be published."""
        self._after(lease, event, now)
        lease.leaving = event

    def bury_unread(self, lease: Lease) -> None:
        """Start to bury a message that was never reserved, because it is not a valid job."""
        lease.state, lease.leaving = State.RESERVED, Event.BURY

    def expire(self, now: float) -> list[Lease]:
        """Start to give up the jobs whose deadline has passed.

        A copy of each is to be published.
        """
        expired: list[Lease] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            lease = self._due(heapq.heappop(self._deadlines))
            if lease is not None:
                lease.leaving = Event.TIMEOUT
                expired.append(lease)
        return expired

    def next_expiry(self) -> float | None:
        """Return the time of the next call of `expire`."""
        while self._deadlines:
            if self._due(self._deadlines[0]) is not None:
                return self._deadlines[0][0]
            heapq.heappop(self._deadlines)
        return None

    def copied(self, lease: Lease) -> Do:
        """End a leaving lease whose copy was confirmed."""
        return self._left(lease, Do.ACK)

    def not_copied(self, lease: Lease, do: Do = Do.NACK) -> Do:
        """End a leaving lease whose copy was not published, or not confirmed."""
        return self._left(lease, do)

    def is_any_leaving(self) -> bool:
        """Whether a copy of any job is in flight."""
        return any(lease.leaving is not None for lease in self._leases.values())

    def hand_back(self, lease: Lease) -> Do:
        """Requeue a job that was never started, or whose worker stops."""
        if lease.leaving is not None or not self.holds(lease):
            return Do.NOTHING
        self._end(lease, State.READY, Event.LOSE)
        return Do.NACK

    def return_unchanged(self, lease: Lease, now: float) -> Do:
        """Requeue a reserved job whose caller did nothing with it."""
        self._end(lease, self._after(lease, Event.HAND_BACK, now), Event.HAND_BACK)
        return Do.NACK

    def delete(self, lease: Lease) -> Do:
        """End the lease of a job that was deleted by its id, reserved or not."""
        if lease.leaving is not None or not self.holds(lease):
            return Do.NOTHING
        self._end(lease, State.DELETED, Event.DELETE)
        return Do.ACK

    def forget(self, lease: Lease) -> None:
        """Remove a lease whose message was settled earlier."""
        self._leases.pop((lease.channel, lease.tag), None)

    def lose(self, channel: int | None = None) -> list[Lease]:
        """End the leases of a lost connection or channel, whose jobs the broker requeues."""
        lost = [lease for lease in self._leases.values() if channel in (None, lease.channel)]
        for lease in lost:
            self._end(lease, State.READY, Event.LOSE)
        return lost

    def adopt(self, lease: Lease, again: Lease, deadline: float | None = None) -> None:
        """Continue a lost lease with its message, which the broker has redelivered.

        The deadline stays unless another one is given, because the handler did not stop.
        """
        lease.channel, lease.tag, lease.redeliveries = again.channel, again.tag, again.redeliveries
        lease.state, lease.ended_by, lease.leaving = State.RESERVED, None, None
        lease.fate = None
        self._leases[lease.channel, lease.tag] = lease
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
        self._leases.pop((lease.channel, lease.tag), None)

    def _set_deadline(self, lease: Lease, deadline: float) -> None:
        lease.deadline = deadline
        if len(self._deadlines) > 2 * len(self._leases) + _SPARE_DEADLINES:
            self._forget_old_deadlines()
        heapq.heappush(self._deadlines, (deadline, (lease.channel, lease.tag)))

    def _forget_old_deadlines(self) -> None:
        """Remove the deadlines of jobs that were settled before them."""
        self._deadlines = [entry for entry in self._deadlines if self._due(entry) is not None]
        heapq.heapify(self._deadlines)

    def _due(self, entry: tuple[float, Key]) -> Lease | None:
        """Return the lease of a deadline, if it still exists and its deadline has not changed."""
        deadline, key = entry
        lease = self._leases.get(key)
        return lease if lease and lease.deadline == deadline and not lease.is_over else None


_WHY = {
    Event.FINISH: "was already finished",
    Event.RELEASE: "was already released",
    Event.HAND_BACK: "was already handed back",
    Event.BURY: "was already buried",
    Event.TIMEOUT: "was retried because its ttr had passed",
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
