"""Doubt: records of the log of deletes that claim what cannot be.

A record dated in the far future would delete everything that is ever put. So what is dated later
than a week after the reader's own time is doubted: it is kept apart and deletes nothing. A delete
of one token is exact whatever its date, and is not doubted.

The reader's clock may be what is wrong. A job is never handed out before it is due, so a job that
is due a day after the reader's time shows that this clock is behind. Such a job is dead by doubted
records too. So is a message that does not say when it was put: every delete of its id reaches it,
whatever its date.

Times are milliseconds since 1970.
"""

from dataclasses import replace

from rabbitdelay.core.deletes.records import Delete, Exact, Keep, Pause, Purge, Record
from rabbitdelay.core.deletes.tombstones import Death, Tombstones
from rabbitdelay.core.topology import ladder

AHEAD_MS = 7 * ladder.DAY_MS
"""How far ahead of its reader's clock a record may be dated."""
BEHIND_MS = ladder.DAY_MS
"""A job that is due so much after the reader's time shows that the clock is behind."""
BEFORE_THE_LOG = -1
"""`since` of a pause that was known before the log began."""


def latest_ms(now_ms: int) -> int:
    """Return the latest time that a record may name."""
    return now_ms + AHEAD_MS


def is_possible(record: Record, position: int) -> bool:
    """Whether a record may stand at its position: a pause repeats only one that was before it."""
    if isinstance(record, Pause) and record.since is not None:
        return BEFORE_THE_LOG <= record.since < position
    return True


def split(record: Record, latest_ms: int) -> tuple[Record | None, Record | None]:
    """Return what a record says beyond doubt, and what is to be doubted."""
    if not isinstance(record, Delete | Keep | Purge) or record.time_ms <= latest_ms:
        return record, None
    match record:
        case Delete(targets):
            exact = tuple(target for target in targets if isinstance(target, Exact))
            ids = tuple(target for target in targets if isinstance(target, str))
            return (
                replace(record, targets=exact, time_ms=0) if exact else None,
                replace(record, targets=ids) if ids else None,
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
        """Keep a record apart."""
        self.tombstones.add(record)
        self.is_empty = False

    def load(self, stones: bytes) -> None:
        """Keep stones apart."""
        if stones:
            self.tombstones.stones.load(stones)
            self.is_empty = False

    def doubt_purges(self, tombstones: Tombstones, latest_ms: int) -> None:
        """Keep apart the purges of a set that are dated too late."""
        late = {topic: time for topic, time in tombstones.purges.items() if time > latest_ms}
        for topic, time_ms in late.items():
            del tombstones.purges[topic]
            self.add(Purge(topic, time_ms))

    def kills(
        self, topic: str, id: str, token: str, put_ms: int | None, *, due_ms: int, now_ms: int
    ) -> Death | None:
        """Return why a job is dead that has no date, or shows that the reader's clock is behind."""
        is_behind = due_ms > now_ms + BEHIND_MS
        if self.is_empty or not (is_behind or put_ms is None):
            return None
        return self.tombstones.kills(topic, id, token, put_ms)

    def purges(self) -> list[Purge]:
        """Return the doubted purges, to be written again."""
        return [Purge(topic, time_ms) for topic, time_ms in self.tombstones.purges.items()]
