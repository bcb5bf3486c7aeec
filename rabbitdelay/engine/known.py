"""What is known of the log of tombstones: for any thread to ask whether a job may be handed out."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from rabbitdelay.core import envelope
from rabbitdelay.core.envelope import Message
from rabbitdelay.core.following import Following
from rabbitdelay.core.lease import Lease
from rabbitdelay.core.tombstones import Death, Tombstones
from rabbitdelay.models import Job

SWEPT_AT_ONCE = 1 / 60
OVERDUE_SECONDS = 600.0
"""How long nothing is forgotten after a job came that was due before what is known."""


class Verdict(Enum):
    """Whether a job may be handed out now."""

    LIVES = auto()
    DEAD = auto()
    WAIT = auto()
    """Nobody can tell, or its topic is paused."""


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
        self._overdue: tuple[float, int] | None = None
        """When a job came last that was due before what is kept, and what is kept because of it."""

    @abstractmethod
    def recall(self, due_ms: int) -> None:
        """A job has waited for longer than tombstones are kept here: read the whole log again."""

    @property
    def is_current(self) -> bool:
        """Whether everything in the log is known here."""
        return self.following.is_current

    def verdict(self, lease: Lease) -> Verdict:
        """Whether a job may be handed out now."""
        job = lease.job
        with self.lock:
            following, known = self.following, self.following.tombstones
            if not following.is_current or known.is_paused(job.topic):
                return Verdict.WAIT
            if known.is_sure_of(job.due_ms):
                if self._overdue is not None and job.due_ms < self._now_ms() - self._grace_ms:
                    self._overdue = (time.monotonic(), self._overdue[1])
                death = self._kills(job, lease.message)
                return Verdict.LIVES if death is None else Verdict.DEAD
            following.cut_off()
        self.recall(job.due_ms)
        return Verdict.WAIT

    def is_sure_of(self, job: Job) -> bool:
        """Whether all that may have killed a job is known here; else the log is read for it."""
        with self.lock:
            following = self.following
            if not following.is_current or following.tombstones.is_sure_of(job.due_ms):
                return following.is_current
            following.cut_off()
        self.recall(job.due_ms)
        return False

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
        before_ms = self._now_ms() - self._grace_ms
        if self._overdue is not None:
            seen_at, due_ms = self._overdue
            before_ms = min(before_ms, due_ms)
            if time.monotonic() - seen_at > OVERDUE_SECONDS:
                self._overdue = None
        with self.lock:
            self.following.tombstones.expire_some(before_ms, SWEPT_AT_ONCE)

    def _know_nothing_before(self, due_ms: int) -> None:
        """Begin with nothing, and keep what may have killed a job that was due then."""
        floor_ms = due_ms - self._grace_ms
        self._overdue = (time.monotonic(), floor_ms)
        with self.lock:
            self.following = Following(Tombstones(grace_ms=self._grace_ms, floor_ms=floor_ms))

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _kills(self, job: Job, message: Message) -> Death | None:
        put_ms = job.put_ms if envelope.tells_when_put(message) else None
        return self.following.tombstones.kills(job.topic, job.id, job.token, put_ms)
