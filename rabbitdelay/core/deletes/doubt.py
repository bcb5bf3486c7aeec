"""Doubt: detecting records of the log of deletes that cannot be right.

A record dated in the far future would delete every job that is ever put. So a record dated more
than a week after the reader's own time is doubted: it is kept apart and deletes nothing. A delete
of one token is exact whatever its date, and is not doubted.

The reader's clock may be the wrong one. A job is never delivered before it is due, so a job that is
due a day after the reader's time shows that the reader's clock is behind. Doubted records apply to
such a job, too. They also apply to a message without a put time, because every delete of its id
does, whatever its date.

Times are milliseconds since 1970.
"""

from dataclasses import replace

from rabbitdelay.core.deletes.records import Delete, Exact, Keep, Pause, Purge, Record
from rabbitdelay.core.deletes.tombstones import Death, Tombstones
from rabbitdelay.core.topology import ladder

AHEAD_MS = 7 * ladder.DAY_MS
"""Milliseconds by which the date of a record may be ahead of the reader's clock."""
BEHIND_MS = ladder.DAY_MS
"""Time, in milliseconds, by which a delivered job must be due after the reader's time to show that
the reader's clock is behind."""
BEFORE_THE_LOG = -1
"""`since` of a pause from before the log began."""


def latest_ms(now_ms: int) -> int:
    """Return the latest time that a record may contain."""
    return now_ms + AHEAD_MS


def is_possible(record: Record, position: int) -> bool:
    """Whether a record can be at its position: a pause can only repeat an earlier one."""
    if isinstance(record, Pause) and record.since is not None:
        return BEFORE_THE_LOG <= record.since < position
    return True


def split(record: Record, latest_ms: int) -> tuple[Record | None, Record | None]:
    """Return the part of a record that is certain, and the part to doubt."""
    if not isinstance(record, Delete | Keep | Purge) or record.time_ms <= latest_ms:
        return record, None
    match record:
        case Delete(jobs):
            exact = tuple(job for job in jobs if isinstance(job, Exact))
            ids = tuple(job for job in jobs if isinstance(job, str))
            return (
                replace(record, jobs=exact, time_ms=0) if exact else None,
                replace(record, jobs=ids) if ids else None,
            )
        case Keep(id, _, _, due_ms, instead_of):
            exact = tuple(Exact(id, token, due_ms) for token in instead_of)
            return Delete(exact, 0) if exact else None, replace(record, instead_of=())
    return None, record


class Doubted:
    """The records that one reader doubts."""

    def __init__(self) -> None:
        self.tombstones = Tombstones()
        self.is_empty = True

    def add(self, record: Record) -> None:
        """Add a record."""
        self.tombstones.add(record)
        self.is_empty = False

    def load(self, packed: bytes) -> None:
        """Add dumped tombstones."""
        if packed:
            self.tombstones.table.load(packed)
            self.is_empty = False

    def doubt_purges(self, tombstones: Tombstones, latest_ms: int) -> None:
        """Move the purges of a set that are dated too late to the doubted ones."""
        late = {topic: time for topic, time in tombstones.purges.items() if time > latest_ms}
        for topic, time_ms in late.items():
            del tombstones.purges[topic]
            self.add(Purge(topic, time_ms))

    def kills(
        self, topic: str, id: str, token: str, put_ms: int | None, *, due_ms: int, now_ms: int
    ) -> Death | None:
        """Return why doubted records delete a job, or None if they do not apply to it.

        They apply to a job without a put time, and to one whose due time shows that the clock is
        behind.
        """
        is_behind = due_ms > now_ms + BEHIND_MS
        if self.is_empty or not (is_behind or put_ms is None):
            return None
        return self.tombstones.kills(topic, id, token, put_ms)

    def purges(self) -> list[Purge]:
        """Return the doubted purges, to be written to another log."""
        return [Purge(topic, time_ms) for topic, time_ms in self.tombstones.purges.items()]
