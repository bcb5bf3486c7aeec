"""One consumer's view of the log of deletes, which decides whether a job may be handed out.

A job is handed out only if this view has read the log to its end and can prove that it was current
a moment ago. Any thread may ask.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.cursor import Following
from rabbitdelay.core.deletes.freshness import Freshness
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.models import Job
from rabbitdelay.system_time import TimeSource

SWEPT_AT_ONCE = 1 / 60
OVERDUE_SECONDS = 600.0
"""Time for which tombstones do not expire after an overdue job, which is one that was due before
the oldest kept delete."""


class Liveness(Enum):
    """Whether a job may be handed out now, if no delete of it is known."""

    ALIVE = auto()
    WAIT = auto()
    """The log is not read to its end, or the topic is paused."""
    UNPROVEN = auto()
    """The proof that every delete is known has expired and is being renewed."""


@dataclass(frozen=True, slots=True)
class TombstoneStats:
    """The tombstones that one consumer keeps in memory."""

    count: int
    memory_bytes: int
    """Approximate memory that they take in each consumer."""
    oldest_ms: int | None
    """Time of the oldest kept delete by id, in milliseconds since 1970."""
    snapshot_ms: int | None
    """Time of the last snapshot, in milliseconds since 1970; None if there is none or it is
    unknown."""
    records: int
    """Number of records read from the log; after a snapshot, only those behind it."""
    paused: tuple[str, ...]
    """The paused topics."""


class DeleteCheck(ABC):
    """One consumer's view of the log of deletes, safe for any thread. A subclass reads the log."""

    def __init__(self, known: KnownDeletes, monotonic: TimeSource) -> None:
        self._monotonic = monotonic
        self.known = known
        self.lock = known.lock
        self._is_refreshing = False
        """Whether `refresh` was called and has not started yet."""
        self._overdue_at: float | None = None
        """Monotonic time of the last overdue job, for which this consumer keeps every record of the
        log."""

    @abstractmethod
    def recall(self) -> None:
        """Read the whole log again, for a job that was delayed longer than tombstones are kept."""

    @abstractmethod
    def refresh(self) -> None:
        """Renew the proof that every delete is known, unless that is in progress."""

    @property
    def following(self) -> Following:
        """The position in the log and the knowledge from it. Changed only under the lock."""
        return self.known.following

    @property
    def is_current(self) -> bool:
        """Whether the log was read to its end and is, as far as is known, still being read."""
        return self.following.is_current

    def liveness(self, lease: Lease) -> Liveness | Death:
        """Return whether a job may be handed out now, or why it is deleted."""
        job = lease.job
        with self.lock:
            following = self.known.following
            known = following.tombstones
            if not following.is_current or known.is_paused(job.topic):
                return Liveness.WAIT
            known_ms = _known_ms(job, lease.message)
            if known.is_sure_of(known_ms):
                if self._overdue_at is not None and known_ms < self._kept_from_ms():
                    self._overdue_at = self._monotonic()
                if (death := self.known.kills(job, lease.message)) is not None:
                    return death
                is_proven = self._is_proven()
                return Liveness.ALIVE if is_proven else Liveness.UNPROVEN
            following.cut_off()
        self.recall()
        return Liveness.WAIT

    def is_sure_of(self, job: Job, message: Message) -> bool:
        """Whether every delete that may apply to a job is known.

        If not, start to read the log for it.
        """
        with self.lock:
            following = self.following
            if not following.is_current:
                return False
            if following.tombstones.is_sure_of(_known_ms(job, message)):
                return self._is_proven()
            following.cut_off()
        self.recall()
        return False

    def prepare(self) -> None:
        """Renew the proof that every delete is known, because a job is about to be handed out."""
        with self.lock:
            self._is_proven()

    def _is_proven(self) -> bool:
        """Whether the proof is fresh enough for a hand-out; an ageing one is renewed.

        Requires the lock.
        """
        proof = self.following.proof
        freshness = proof.freshness(self._monotonic())
        if freshness is Freshness.FRESH:
            return True
        if not self._is_refreshing and not proof.is_awaited:
            self._is_refreshing = True
            self.refresh()
        return freshness is Freshness.AGING

    def is_paused(self, topic: str) -> bool:
        """Whether a topic is paused."""
        with self.lock:
            return self.following.tombstones.is_paused(topic)

    def paused(self) -> set[str]:
        """Return the paused topics."""
        with self.lock:
            return self.following.tombstones.paused

    def stats(self) -> TombstoneStats:
        """Count the tombstones. This scans all of them, which takes half a second for a million."""
        with self.lock:
            following, known = self.following, self.following.tombstones
            return TombstoneStats(
                known.count,
                known.memory_bytes,
                known.table.oldest_ms(),
                following.snapshot_ms,
                following.read_count,
                tuple(sorted(known.paused)),
            )

    # Expiry, and reading the whole log again

    def _forget_some(self) -> None:
        """Remove expired tombstones from a part of the set."""
        if self._overdue_at is not None:
            if self._monotonic() - self._overdue_at <= OVERDUE_SECONDS:
                return
            self._overdue_at = None
        with self.lock:
            before_ms = self._kept_from_ms()
            self.following.tombstones.expire_some(before_ms, SWEPT_AT_ONCE)

    def _begin_with_nothing(self) -> None:
        """Start with an empty set, in order to read the whole log and keep every record of it.

        One such reading serves all overdue jobs that follow, however long ago they were due.
        """
        self._overdue_at = self._monotonic()
        self.known.start_empty()

    def _kept_from_ms(self) -> int:
        """Return the time from which on all tombstones are kept."""
        return self.known.now_ms() - self.known.grace_ms


def _known_ms(job: Job, message: Message) -> int:
    """Return the time until which deletes of a job are kept; a message without dates is due now."""
    known_ms = envelope.known_ms(message)
    return job.due_ms if known_ms is None else known_ms
