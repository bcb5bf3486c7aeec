"""The deletes that a consumer knows so far, from reading the log and from its own client.

A job that is not known to be deleted may be deleted all the same. The view of the log (view.py)
says whether every delete is known.
"""

import threading
from collections.abc import Callable

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.cursor import Following
from rabbitdelay.core.deletes.records import Delete, Keep, Purge, Record
from rabbitdelay.core.deletes.tombstones import Death, Tombstones
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.models import Job


class KnownDeletes:
    """The deletes that one consumer knows. Its log reader adds to them. Thread-safe."""

    def __init__(self, clock: Callable[[], float], grace_ms: int) -> None:
        self.lock = threading.Lock()
        """Held while `following` is read or changed."""
        self.grace_ms = grace_ms
        self.following = Following(Tombstones(grace_ms=grace_ms))
        self._clock = clock

    def now_ms(self) -> int:
        """Return the time by this machine's clock, in milliseconds since 1970."""
        return int(self._clock() * 1000)

    def learn(self, record: Record) -> None:
        """Add a delete or a purge before its record is read from the log.

        A pause or resume is not added, because its position in the log decides.
        """
        if isinstance(record, (Delete, Keep, Purge)):
            with self.lock:
                self.following.tombstones.add(record)

    def death(self, lease: Lease) -> Death | None:
        """Return why a leased job is dead; None if it is not, as far as is known."""
        return self.death_of(lease.job, lease.message)

    def death_of(self, job: Job, message: Message) -> Death | None:
        """Return why a job without a lease is dead; None if it is not."""
        with self.lock:
            return self.kills(job, message)

    def kills(self, job: Job, message: Message) -> Death | None:
        """Return why a job is dead. Requires the lock."""
        put_ms = job.put_ms if envelope.tells_when_put(message) else None
        asked = (job.topic, job.id, job.token, put_ms)
        death = self.following.tombstones.kills(*asked)
        if death is None and not self.following.doubted.is_empty:
            now_ms = self.now_ms()
            return self.following.doubted.kills(*asked, due_ms=job.due_ms, now_ms=now_ms)
        return death

    def start_empty(self) -> None:
        """Forget everything, in order to read the whole log."""
        with self.lock:
            self.following = Following(Tombstones(grace_ms=self.grace_ms))
