"""The set of tombstones: which jobs are deleted, and which topics are paused.

A tombstone deletes jobs by id and time, or by one token. "Keep only this token" is a time, too,
with the token as a tie-breaker: it deletes jobs that were put earlier, or in the same millisecond
with a lower token. So of two jobs that replace each other in one millisecond, exactly one is left.

A tombstone is needed until the last job that it may delete has been delivered: until that job is
due, as far as that is known, and for a grace period after it, in which the job may wait for a
consumer. For a job that was due before the forgotten tombstones expired, the set answers that it is
not sure.

This file owns two rules:

1. Adding is a join: repetition and order do not change the answers. Pause and resume are the
   exception: the later one in the log counts.
2. A tombstone deletes its jobs for as long as it exists, regardless of other records.
"""

from dataclasses import dataclass
from enum import Enum

from rabbitdelay.core.deletes import tombstone_table
from rabbitdelay.core.deletes.records import (
    Delete,
    Exact,
    Horizon,
    Keep,
    Pause,
    Purge,
    Record,
    Resume,
)
from rabbitdelay.core.deletes.tombstone_table import Kill, TombstoneTable
from rabbitdelay.core.jobs import ids
from rabbitdelay.core.topology import ladder

GRACE_MS = 24 * ladder.HOUR_MS
"""Milliseconds after its due time for which a waiting job's tombstone is kept."""
LONG_MS = GRACE_MS // 2
"""Milliseconds by which a job may be due later than its id says, without an extending record."""
HORIZON_MS = 30 * ladder.DAY_MS
"""Longest delay of jobs with chosen ids, in milliseconds, unless the log contains a longer one."""

_BEFORE_ALL = -1


class Death(Enum):
    """The reason why a job is deleted. The value is the text that people read."""

    DELETED = "deleted"
    REPLACED = "replaced by another job of its id"
    PURGED = "purged with its topic"


@dataclass(frozen=True, slots=True)
class Switch:
    """Whether a topic is paused, and the position in the log of the record that says so."""

    position: int
    is_paused: bool


class Tombstones:
    """The set of tombstones that one consumer keeps."""

    def __init__(self, *, grace_ms: int = GRACE_MS, floor_ms: int = 0) -> None:
        self.grace_ms = grace_ms
        self.floor_ms = floor_ms
        """Tombstones that were last needed before this time may have been forgotten."""
        self.horizon_ms = HORIZON_MS
        self.table = TombstoneTable()
        self.purges: dict[str, int] = {}
        """Time of the last purge of each topic, which is kept permanently."""
        self.switches: dict[str, Switch] = {}
        self._swept = 0

    # Adding

    def add(self, record: Record, position: int = 0) -> None:
        """Add a record at this position of the log."""
        match record:
            case Delete(jobs):
                for job in jobs:
                    self._delete(record, job)
            case Keep():
                self._keep(record)
            case Purge(topic, time_ms):
                self.purge(topic, time_ms)
            case Pause(topic, since):
                self.switch(topic, Switch(position if since is None else since, is_paused=True))
            case Resume(topic):
                self.switch(topic, Switch(position, is_paused=False))
            case Horizon(delay_ms):
                self.raise_horizon(delay_ms)

    def purge(self, topic: str, time_ms: int) -> None:
        """Join a purge."""
        self.purges[topic] = max(time_ms, self.purges.get(topic, time_ms))

    def switch(self, topic: str, switch: Switch) -> None:
        """Join a pause or a resume."""
        there = self.switches.get(topic)
        if there is None or there.position < switch.position:
            self.switches[topic] = switch

    def raise_horizon(self, delay_ms: int) -> None:
        """Join a horizon, which is limited to the longest delay."""
        self.horizon_ms = max(self.horizon_ms, min(delay_ms, ladder.MAX_DELAY_MS))

    # Asking

    def kills(self, topic: str, id: str, token: str, put_ms: int | None) -> Death | None:
        """Return why a job is deleted; None if it is not.

        A job without a put time is deleted by any delete of its id, but not by a purge, which would
        delete all future jobs without a put time.
        """
        if put_ms is None:
            put_ms = 1  # not 0, which `known_until` uses to delete nothing
        elif put_ms <= self.purges.get(topic, -1):
            return Death.PURGED
        kill = self.table.kill(id, put_ms, token)
        if kill is None:
            return None
        return Death.REPLACED if kill is Kill.BY_ANOTHER else Death.DELETED

    def is_sure_of(self, due_ms: int) -> bool:
        """Whether every tombstone that could delete a job due at this time is still known."""
        return due_ms >= self.floor_ms or self.floor_ms <= 0

    def is_paused(self, topic: str) -> bool:
        """Whether a topic is paused."""
        switch = self.switches.get(topic)
        return switch is not None and switch.is_paused

    @property
    def paused(self) -> set[str]:
        """The paused topics."""
        return {topic for topic, switch in self.switches.items() if switch.is_paused}

    @property
    def count(self) -> int:
        """Number of tombstones, including purges."""
        return self.table.count + len(self.purges)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use, in bytes."""
        return self.table.memory_bytes

    def records(self, *, for_another_log: bool) -> list[Record]:
        """Return what is known besides the tombstones, to be written to this or another log."""
        pauses = [
            Pause(topic, None if for_another_log else self.switches[topic].position)
            for topic in sorted(self.paused)
        ]
        purges = (Purge(topic, time_ms) for topic, time_ms in self.purges.items())
        return [Horizon(self.horizon_ms), *purges, *pauses]

    # Forgetting

    def forget_positions(self) -> None:
        """Prepare for another log, whose pauses and resumes all count as later."""
        self.switches = {
            topic: Switch(_BEFORE_ALL, switch.is_paused) for topic, switch in self.switches.items()
        }

    def expire(self, now_ms: int) -> None:
        """Remove the tombstones that are no longer needed."""
        self._forget_before(now_ms - self.grace_ms)
        self.table.expire(self.floor_ms)

    def expire_some(self, before_ms: int, share: float) -> None:
        """Remove, from a share of the table, tombstones that were not needed after a time.

        Each call continues where the last one ended. Expiring a million at once would block for
        half a second.
        """
        self._forget_before(before_ms)
        many = max(1, int(len(self.table) * share))
        begin = self._swept if self._swept < len(self.table) else 0
        self._swept = min(begin + many, len(self.table))
        self.table.expire(self.floor_ms, range(begin, self._swept))

    def _forget_before(self, time_ms: int) -> None:
        self.floor_ms = max(self.floor_ms, time_ms)

    # Pieces

    def _delete(self, record: Delete, job: str | Exact) -> None:
        if isinstance(job, Exact):
            last_ms = max(job.due_ms, record.time_ms, self._known_until_ms(job.id))
            self._add(job.id, tombstone_table.exact(job.id, job.token, last_ms), last_ms)
        else:
            last_ms = self._last_ms(job, record.time_ms, record.due_ms)
            self._add(job, tombstone_table.before(job, record.time_ms, last_ms), last_ms)

    def _keep(self, record: Keep) -> None:
        last_ms = max(record.due_ms, self._last_ms(record.id, record.time_ms, None))
        tombstone = tombstone_table.all_but(record.id, record.token, record.time_ms, last_ms)
        self._add(record.id, tombstone, last_ms)
        for token in record.instead_of:
            self._add(record.id, tombstone_table.exact(record.id, token, last_ms), last_ms)

    def _last_ms(self, id: str, time_ms: int, due_ms: int | None) -> int:
        """Return the latest due time of the jobs that a tombstone may delete."""
        if due_ms is None:
            due_ms = ids.due_ms(id)
        return max(time_ms, time_ms + self.horizon_ms if due_ms is None else due_ms)

    def _known_until_ms(self, id: str) -> int:
        """Return the latest due time of an id's jobs, including copies, by its tombstones."""
        return max(map(tombstone_table.last_ms, self.table.of(id)), default=0)

    def _add(self, id: str, tombstone: bytes, last_ms: int) -> None:
        # A job of an id that is still known may be due later than this record says.
        if last_ms >= self.floor_ms or self.table.of(id):
            self.table.add(tombstone)
