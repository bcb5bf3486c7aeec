"""Decide whether a job may be handed out.

A job is handed out only if this consumer has read the log of deletes to its end and can prove that
it was current a moment ago. Any thread may ask.
"""

from enum import Enum, auto

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.freshness import Freshness
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes, Unknown
from rabbitdelay.engine.transport import Then
from rabbitdelay.models import Job
from rabbitdelay.system_time import TimeSource


class Liveness(Enum):
    """Whether a job may be handed out now, if no delete of it is known."""

    ALIVE = auto()
    WAIT = auto()
    """The log is not read to its end, or the topic is paused."""
    UNPROVEN = auto()
    """The proof that every delete is known has expired and is being renewed."""


class DeleteCheck:
    """Checks the jobs of one consumer, and requests what is missing for it. Thread-safe."""

    def __init__(
        self, known: KnownDeletes, monotonic: TimeSource, *, renew: Then, recall: Then
    ) -> None:
        self._known = known
        self._monotonic = monotonic
        self._renew = renew
        """Renews the proof that every delete is known, unless that is in progress."""
        self._recall = recall
        """Reads the whole log again, for a job that was delayed longer than tombstones are kept."""
        self._is_renewing = False
        """Whether `renew` was called and has not started yet. Calling it twice does no harm."""

    @property
    def is_current(self) -> bool:
        """Whether any job may be handed out: the log was read to its end, as far as is known."""
        return self._known.is_current

    def liveness(self, lease: Lease) -> Liveness | Death:
        """Return whether a job may be handed out now, or why it is deleted."""
        judged = self._known.judge(lease.job, lease.message, self._monotonic())
        if judged is Freshness.FRESH:
            return Liveness.ALIVE
        if isinstance(judged, Death):
            return judged
        if isinstance(judged, Unknown):
            self._recall_if(judged)
            return Liveness.WAIT
        return Liveness.ALIVE if self._is_proven(judged) else Liveness.UNPROVEN

    def is_sure_of(self, job: Job, message: Message) -> bool:
        """Whether every delete that may apply to a job is known.

        If not, start to read the log for it.
        """
        sureness = self._known.sureness(job, message, self._monotonic())
        if isinstance(sureness, Unknown):
            self._recall_if(sureness)
            return False
        return self._is_proven(sureness)

    def prepare(self) -> None:
        """Renew the proof that every delete is known, because a job is about to be handed out."""
        self._is_proven(self._known.following.proof.freshness(self._monotonic()))

    def renewal_began(self) -> None:
        """Note that the next renewal has to be requested again."""
        self._is_renewing = False

    def _is_proven(self, freshness: Freshness) -> bool:
        """Whether a proof is fresh enough for a hand-out; an ageing one is renewed."""
        if freshness is Freshness.FRESH:
            return True
        if not self._is_renewing and not self._known.following.proof.is_awaited:
            self._is_renewing = True
            self._renew()
        return freshness is Freshness.AGING

    def _recall_if(self, unknown: Unknown) -> None:
        if unknown is Unknown.TOO_OLD:
            self._recall()
