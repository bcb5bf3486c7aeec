"""What is known of the log of tombstones: for any thread to ask whether a job may be handed out."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.cursor import Following
from rabbitdelay.core.deletes.freshness import Freshness
from rabbitdelay.core.deletes.records import Delete, Keep, Purge, Record
from rabbitdelay.core.deletes.tombstones import Death, Tombstones
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.models import Job

SWEPT_AT_ONCE = 1 / 60
OVERDUE_SECONDS = 600.0
"""How long nothing is forgotten after a job that was due before what consumers keep in mind."""


class Verdict(Enum):
    """Whether a job may be handed out now."""

    LIVES = auto()
    DEAD = auto()
    WAIT = auto()
    """Nobody can tell, or its topic is paused."""
    UNPROVEN = auto()
    """The proof that every delete is known is too old; it is being renewed."""


@dataclass(frozen=True, slots=True)
class TombstoneStats:
    """The tombstones, as one consumer knows them."""

    count: int
    memory_bytes: int
    """About how much memory they take in each consumer."""
    oldest_ms: int | None
    """The earliest delete by id that is still known, in milliseconds since 1970."""
    snapshot_ms: int | None
    """When the last snapshot was taken; None when there is none, or nobody has told."""
    records: int
    """How many records of the log were read here: after a snapshot, those behind it."""
    paused: tuple[str, ...]
    """The topics that are paused."""


class Known(ABC):
    """What one consumer knows of the log, from any thread; whoever reads the log adds to it."""

    def __init__(self, clock: Callable[[], float], grace_ms: int) -> None:
        self.lock = threading.Lock()
        """Held around every look at what is known, and every change of it."""
        self.following = Following(Tombstones(grace_ms=grace_ms))
        self._clock = clock
        self._grace_ms = grace_ms
        self._is_refreshing = False
        """Whether `refresh` was called and has not begun yet."""
        self._overdue_at: float | None = None
        """When the last job came that made this consumer keep all that the log has."""

    @abstractmethod
    def recall(self) -> None:
        """Read the whole log again: a job waited for longer than tombstones are kept here."""

    @abstractmethod
    def refresh(self) -> None:
        """Renew the proof that every delete is known, unless that is under way."""

    @property
    def is_current(self) -> bool:
        """Whether the log was read to its end, and is being read, as far as is known."""
        return self.following.is_current

    def learn(self, record: Record) -> None:
        """Add a delete or purge before it is read from the log.

        A record of a pause is left to the log, because its position there decides.
        """
        if isinstance(record, (Delete, Keep, Purge)):
            with self.lock:
                self.following.tombstones.add(record)

    def verdict(self, lease: Lease) -> Verdict:
        """Whether a job may be handed out now."""
        job = lease.job
        with self.lock:
            following, known = self.following, self.following.tombstones
            if not following.is_current or known.is_paused(job.topic):
                return Verdict.WAIT
            known_ms = _known_ms(job, lease.message)
            if known.is_sure_of(known_ms):
                if self._overdue_at is not None and known_ms < self._now_ms() - self._grace_ms:
                    self._overdue_at = time.monotonic()
                if self._kills(job, lease.message) is not None:
                    return Verdict.DEAD
                is_proven = self._is_proven()
                return Verdict.LIVES if is_proven else Verdict.UNPROVEN
            following.cut_off()
        self.recall()
        return Verdict.WAIT

    def is_sure_of(self, job: Job, message: Message) -> bool:
        """Whether all that may have killed a job is known here; else the log is read for it."""
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
        """Renew the proof that every delete is known, if a job will be handed out soon."""
        with self.lock:
            self._is_proven()

    def _is_proven(self) -> bool:
        """Whether the proof allows a hand-out; one that ages is renewed. Under the lock."""
        proof = self.following.proof
        freshness = proof.freshness(time.monotonic())
        if freshness is Freshness.FRESH:
            return True
        if not self._is_refreshing and not proof.is_awaited:
            self._is_refreshing = True
            self.refresh()
        return freshness is Freshness.AGING

    def death(self, lease: Lease) -> Death | None:
        """Why a job is dead; None when it lives, as far as is known."""
        with self.lock:
            return self._kills(lease.job, lease.message)

    def is_paused(self, topic: str) -> bool:
        """Whether no job of a topic is handed out."""
        with self.lock:
            return self.following.tombstones.is_paused(topic)

    def paused(self) -> set[str]:
        """The topics of which no job is handed out."""
        with self.lock:
            return self.following.tombstones.paused

    def death_of(self, job: Job, message: Message) -> Death | None:
        """Why a job that nobody holds is dead; None when it lives."""
        with self.lock:
            return self._kills(job, message)

    def stats(self) -> TombstoneStats:
        """Count what is known. It looks at all of it: half a second with a million."""
        with self.lock:
            following, known = self.following, self.following.tombstones
            return TombstoneStats(
                known.count,
                known.memory_bytes,
                known.stones.oldest_ms(),
                following.snapshot_ms,
                following.read_count,
                tuple(sorted(known.paused)),
            )

    # Forgetting, and finding again

    def _forget_some(self) -> None:
        """Forget, in a share of what is known, what is not needed any more."""
        if self._overdue_at is not None:
            if time.monotonic() - self._overdue_at <= OVERDUE_SECONDS:
                return
            self._overdue_at = None
        with self.lock:
            before_ms = self._now_ms() - self._grace_ms
            self.following.tombstones.expire_some(before_ms, SWEPT_AT_ONCE)

    def _begin_with_nothing(self) -> None:
        """Forget what is known, to read the whole log and keep everything that is in it.

        One reading serves every overdue job that follows, however long ago it was due.
        """
        self._overdue_at = time.monotonic()
        with self.lock:
            self.following = Following(Tombstones(grace_ms=self._grace_ms))

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _kills(self, job: Job, message: Message) -> Death | None:
        put_ms = job.put_ms if envelope.tells_when_put(message) else None
        asked = (job.topic, job.id, job.token, put_ms)
        death = self.following.tombstones.kills(*asked)
        if death is None and not self.following.doubted.is_empty:
            now_ms = self._now_ms()
            return self.following.doubted.kills(*asked, due_ms=job.due_ms, now_ms=now_ms)
        return death


def _known_ms(job: Job, message: Message) -> int:
    """The time up to which every delete of a job is kept; a message without dates is due now."""
    known_ms = envelope.known_ms(message)
    return job.due_ms if known_ms is None else known_ms
