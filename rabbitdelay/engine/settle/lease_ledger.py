"""The leases of one consumer. Each changes together with the frame that settles its message.

Every method is one step under the lock of the ledger, which nothing else takes. If a frame were
buffered after its lease had changed, the connection could be lost in between: the frame would go
out on the next connection, where another message may have the same channel and delivery tag.
"""

import threading
from collections.abc import Callable

from rabbitdelay.core.consume.leases import Do, Lease, Leases
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.work.retry import Again, Fate
from rabbitdelay.core.work.stats import StatsRecorder
from rabbitdelay.engine.acks.ack_buffer import AckBuffer
from rabbitdelay.engine.settle.recently_finished import RecentlyFinished
from rabbitdelay.errors import LeaseLost
from rabbitdelay.system_time import TimeSource


class LeaseLedger:
    """The leases of one consumer. Thread-safe."""

    def __init__(
        self, acks: AckBuffer, monotonic: TimeSource, schedule: Callable[[float], None]
    ) -> None:
        self.leases = Leases()
        self.stats = StatsRecorder(monotonic())
        self._acks = acks
        self._monotonic = monotonic
        self._schedule = schedule
        """Makes sure that deadlines are checked at a time."""
        self._recently_finished = RecentlyFinished()
        self._lock = threading.RLock()

    # Handing out

    def take(self, lease: Lease) -> None:
        """Add a job that was delivered."""
        with self._lock:
            self.leases.take(lease)

    def reserve(self, lease: Lease) -> bool:
        """Start the ttr of a job that is handed out; return False if its lease was lost."""
        with self._lock:
            if not self.leases.holds(lease):
                return False
            self.leases.reserve(lease, self._monotonic())
            self._schedule(lease.deadline)
            return True

    def touch(self, lease: Lease) -> float:
        """Restart a job's ttr; return the new deadline."""
        with self._lock:
            deadline = self.leases.touch(lease, self._monotonic())
            self._schedule(deadline)
            return deadline

    # Finishing

    def finish(self, lease: Lease) -> None:
        """Acknowledge a job."""
        now = self._monotonic()
        with self._lock:
            try:
                do = self.leases.finish(lease, now)
            except LeaseLost:
                self.stats.refused_late()
                raise
            self._recently_finished.add(lease.identity)
            self._acks.settle(lease.channel, lease.tag, do)
            self.stats.finished(lease.lateness_ms, now)

    def finish_returned(self, lease: Lease) -> None:
        """Acknowledge a job whose handler has returned.

        If the job was lost with its connection and its ttr has not expired, it counts as finished
        all the same: this process does not run it again if the broker redelivers it. Callers of
        `finish` cannot rely on that, because `LeaseLost` is raised and they may undo their work.
        """
        with self._lock:
            if lease.ended_by is Event.LOSE and self._monotonic() < lease.deadline:
                self._recently_finished.add(lease.identity)
            self.finish(lease)

    def acknowledge_again(self, lease: Lease) -> bool:
        """Acknowledge the redelivery of an attempt that this process finished, as its ack was lost.

        Return whether this is one.
        """
        with self._lock:
            if lease.identity not in self._recently_finished:
                return False
            self.leases.forget(lease)
            self._acks.settle(lease.channel, lease.tag, Do.ACK)
            return True

    def adopt(self, lease: Lease, again: Lease, *, renew: bool) -> None:
        """Continue a lost lease with the job's redelivery."""
        deadline = self._monotonic() + lease.ttr_seconds if renew else None
        with self._lock:
            self.leases.forget(again)
            self.leases.adopt(lease, again, deadline)
            self._schedule(lease.deadline)

    # Leaving: the message is acknowledged when its copy is confirmed

    def leave(self, lease: Lease, event: Event) -> None:
        """Start to give up a job, which can no longer be finished."""
        with self._lock:
            try:
                self.leases.leave(lease, event, self._monotonic())
            except LeaseLost:
                self.stats.refused_late()
                raise

    def return_unchanged(self, lease: Lease) -> None:
        """Return a reserved job unchanged to the broker, for its caller."""
        with self._lock:
            do = self.leases.return_unchanged(lease, self._monotonic())
            self._acks.settle(lease.channel, lease.tag, do)

    def leave_unread(self, lease: Lease) -> None:
        """Start to bury a message that is not a job."""
        with self._lock:
            self.leases.take(lease)
            self.leases.bury_unread(lease)

    def expire(self) -> list[Lease]:
        """Start to give up the jobs whose deadline has passed, and return them."""
        with self._lock:
            expired = self.leases.expire(self._monotonic())
            for _ in expired:
                self.stats.timed_out()
        return expired

    def next_expiry(self) -> float | None:
        """Return the time of the next call of `expire`."""
        with self._lock:
            return self.leases.next_expiry()

    def count(self, fate: Fate) -> None:
        """Count a job that is retried, released or buried."""
        with self._lock:
            if isinstance(fate, Again):
                self.stats.released()
            else:
                self.stats.buried()

    def copied(self, lease: Lease) -> None:
        """Acknowledge a leaving job whose copy is confirmed."""
        with self._lock:
            self._acks.settle(lease.channel, lease.tag, self.leases.copied(lease))

    def not_copied(self, lease: Lease, do: Do) -> None:
        """Settle a leaving job whose copy cannot be published."""
        with self._lock:
            self._acks.settle(lease.channel, lease.tag, self.leases.not_copied(lease, do))

    def is_any_leaving(self) -> bool:
        """Whether the copy of any job is in flight."""
        with self._lock:
            return self.leases.is_any_leaving()

    # Ending otherwise

    def delete(self, lease: Lease) -> None:
        """Acknowledge a deleted job, reserved or not, and also one that is leaving."""
        with self._lock:
            if lease.leaving is not None:
                lease.leaving = Event.DELETE
                do = self.leases.copied(lease)
            else:
                do = self.leases.delete(lease)
            self._acks.settle(lease.channel, lease.tag, do)
            self.stats.deleted()

    def hand_back(self, lease: Lease) -> None:
        """Return a job unchanged to the broker."""
        with self._lock:
            self._acks.settle(lease.channel, lease.tag, self.leases.hand_back(lease))

    def hand_back_all(self) -> list[Lease]:
        """Return all jobs that are not leaving to the broker, and return their leases."""
        with self._lock:
            leases = [lease for lease in self.leases.all() if lease.leaving is None]
            for lease in leases:
                self.hand_back(lease)
        return leases

    def lose(self, channel: int | None) -> list[Lease]:
        """End the leases of a closed channel, or of the whole connection if None."""
        with self._lock:
            self._acks.lose(channel)
            lost = self.leases.lose(channel)
            self.stats.lost(sum(lease.was_reserved for lease in lost))
        return lost

    def abandon(self) -> None:
        """Drop all leases in a forked child.

        The leases are the parent's, and one of its threads may have held the lock.
        """
        self._lock = threading.RLock()
        self.leases.lose()
