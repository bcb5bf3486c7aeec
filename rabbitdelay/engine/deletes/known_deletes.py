"""The deletes that a consumer knows so far, from reading the log and from its own client.

A job that is not known to be deleted may be deleted all the same. The check of a job
(delete_check.py) requires in addition that every delete is known.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes import doubt
from rabbitdelay.core.deletes.cursor import Following, Read
from rabbitdelay.core.deletes.freshness import Freshness
from rabbitdelay.core.deletes.records import Delete, Keep, Purge, Record
from rabbitdelay.core.deletes.tombstones import Death, Tombstones
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.models import Job

SWEPT_AT_ONCE = 1 / 60
OVERDUE_SECONDS = 600.0
"""Time for which tombstones do not expire after an overdue job, which is one that was due before
the oldest kept delete."""


class Unknown(Enum):
    """Why it is not known whether a job is deleted, or may be handed out."""

    NOT_READ = auto()
    """The log is not read to its end, or the topic is paused."""
    TOO_OLD = auto()
    """The deletes of the job's time are no longer kept: the whole log has to be read again."""


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


class KnownDeletes:
    """The deletes that one consumer knows. Its log reader adds to them. Thread-safe.

    The lock is taken by the methods. What takes several steps is done in `locked`.
    """

    def __init__(self, clock: Callable[[], float], grace_ms: int) -> None:
        self.grace_ms = grace_ms
        self.following = Following(Tombstones(grace_ms=grace_ms))
        """The position in the log and the knowledge from it. Changed only under the lock."""
        self._clock = clock
        self._lock = threading.Lock()
        self._overdue_at: float | None = None
        """Monotonic time of the last overdue job, for which this consumer keeps every record of the
        log."""

    def now_ms(self) -> int:
        """Return the time by this machine's clock, in milliseconds since 1970."""
        return int(self._clock() * 1000)

    # What is known

    @property
    def is_current(self) -> bool:
        """Whether the log was read to its end and is, as far as is known, still being read."""
        return self.following.is_current

    def judge(self, job: Job, message: Message, now: float) -> Freshness | Death | Unknown:
        """Return why a job is dead; if it is not, the freshness of the proof at a monotonic time.

        A job for which the log has to be read again makes the reader no longer current.
        """
        with self._lock:
            following = self.following
            known = following.tombstones
            if not following.is_current or known.is_paused(job.topic):
                return Unknown.NOT_READ
            known_ms = _known_ms(job, message)
            if not known.is_sure_of(known_ms):
                following.cut_off()
                return Unknown.TOO_OLD
            if self._overdue_at is not None and known_ms < self._kept_from_ms():
                self._overdue_at = now
            death = self._kills(job, message)
            return following.proof.freshness(now) if death is None else death

    def sureness(self, job: Job, message: Message, now: float) -> Freshness | Unknown:
        """Return how fresh the proof is that every delete of a job is known, or why it is not."""
        with self._lock:
            following = self.following
            if not following.is_current:
                return Unknown.NOT_READ
            if not following.tombstones.is_sure_of(_known_ms(job, message)):
                following.cut_off()
                return Unknown.TOO_OLD
            return following.proof.freshness(now)

    def death(self, lease: Lease) -> Death | None:
        """Return why a leased job is dead; None if it is not, as far as is known."""
        return self.death_of(lease.job, lease.message)

    def death_of(self, job: Job, message: Message) -> Death | None:
        """Return why a job without a lease is dead; None if it is not."""
        with self._lock:
            return self._kills(job, message)

    def is_paused(self, topic: str) -> bool:
        """Whether a topic is paused."""
        with self._lock:
            return self.following.tombstones.is_paused(topic)

    def paused(self) -> set[str]:
        """Return the paused topics."""
        with self._lock:
            return self.following.tombstones.paused

    def stats(self) -> TombstoneStats:
        """Count the tombstones. This scans all of them, which takes half a second for a million."""
        with self._lock:
            following, known = self.following, self.following.tombstones
            return TombstoneStats(
                known.count,
                known.memory_bytes,
                known.table.oldest_ms(),
                following.snapshot_ms,
                following.read_count,
                tuple(sorted(known.paused)),
            )

    def _kills(self, job: Job, message: Message) -> Death | None:
        """Return why a job is dead. Called under the lock."""
        put_ms = job.put_ms if envelope.tells_when_put(message) else None
        asked = (job.topic, job.id, job.token, put_ms)
        death = self.following.tombstones.kills(*asked)
        if death is None and not self.following.doubted.is_empty:
            now_ms = self.now_ms()
            return self.following.doubted.kills(*asked, due_ms=job.due_ms, now_ms=now_ms)
        return death

    # Changes

    @contextmanager
    def locked(self) -> Iterator[Following]:
        """Hold the lock while the position or the tombstones are read or changed as a whole."""
        with self._lock:
            yield self.following

    def learn(self, record: Record) -> None:
        """Add a delete or a purge before its record is read from the log.

        A pause or resume is not added, because its position in the log decides.
        """
        if isinstance(record, (Delete, Keep, Purge)):
            with self._lock:
                self.following.tombstones.add(record)

    def read(self, position: int, body: bytes, now: float) -> Read:
        """Add a record that was read from the log at a monotonic time."""
        with self._lock:
            return self.following.read(position, body, now, doubt.latest_ms(self.now_ms()))

    def replace(self, following: Following) -> None:
        """Know what a snapshot contains, instead of what was read so far."""
        with self._lock:
            self.following = following

    def begin_with_nothing(self, now: float) -> None:
        """Start with an empty set, in order to read the whole log and keep every record of it.

        One such reading serves all overdue jobs that follow, however long ago they were due.
        """
        with self._lock:
            self._overdue_at = now
            self.following = Following(Tombstones(grace_ms=self.grace_ms))

    def forget_some(self, now: float) -> None:
        """Remove expired tombstones from a part of the set."""
        with self._lock:
            if self._overdue_at is not None and now - self._overdue_at <= OVERDUE_SECONDS:
                return
            self._overdue_at = None
            self.following.tombstones.expire_some(self._kept_from_ms(), SWEPT_AT_ONCE)

    def _kept_from_ms(self) -> int:
        """Return the time from which on all tombstones are kept."""
        return self.now_ms() - self.grace_ms


def _known_ms(job: Job, message: Message) -> int:
    """Return the time until which deletes of a job are kept; a message without dates is due now."""
    known_ms = envelope.known_ms(message)
    return job.due_ms if known_ms is None else known_ms
