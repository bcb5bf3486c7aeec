"""Following: how a consumer reads the log of tombstones, and when it may trust what it has read.

It reads from a snapshot's anchor, or from the beginning, up to a fence that it wrote itself: then
it is current, and jobs may be handed out. An anchor is a fence that was read before: there is no
other like it. It is read again before what follows it: if another record is there, this is another
log (somebody deleted the stream), and it is read from its beginning; what was known is still true,
and is written into the new one.

Three rules this file owns:

1. Nothing is handed out unless `is_current`. Whatever cuts it off makes it not current at once.
2. Positions are never trusted by number alone.
3. What is current may be cut off without knowing it: a hand-out needs a fresh `proof` besides.
"""

from enum import Enum, auto

from rabbitdelay.core.deletes import doubt, records, snapshots
from rabbitdelay.core.deletes.doubt import Doubted
from rabbitdelay.core.deletes.freshness import Proof
from rabbitdelay.core.deletes.records import (
    Fence,
    NotARecord,
    Pause,
    Record,
    RecordTooNew,
    Resume,
    Taken,
)
from rabbitdelay.core.deletes.snapshots import Anchor, BrokenSnapshot
from rabbitdelay.core.deletes.tombstone_table import MAX_MS
from rabbitdelay.core.deletes.tombstones import Tombstones

FIRST = "first"
MESSAGE_COST = 10
Offset = int | str
"""Where to read from: a position, or a word that the broker knows."""


class Read(Enum):
    """What a record meant to who follows."""

    NOTHING = auto()
    """It is in the set, and that is all."""
    CAUGHT_UP = auto()
    """It was the awaited fence: everything before it has been read."""
    SWITCHED = auto()
    """A topic was paused or resumed."""
    ASTRAY = auto()
    """This is not the log that was read before: begin at its beginning."""
    PASSED_OVER = auto()
    """It is not a record, or cannot stand where it does."""
    DOUBTED = auto()
    """It is dated too far ahead to be believed, at least in part."""


class Following:
    """What one consumer has read of the log."""

    def __init__(self, tombstones: Tombstones, anchor: Anchor | None = None) -> None:
        self.tombstones = tombstones
        self.anchor = anchor
        """The last fence that was read, anybody's."""
        self.doubted = Doubted()
        """What was read and is not believed."""
        self.is_current = False
        self.proof = Proof()
        """How lately it was current for certain."""
        self.read_count = 0
        self.since_anchor = 0
        """How many records came after the anchor."""
        self.since_snapshot = 0
        """What it would cost to read what came since the last snapshot was taken."""
        self.snapshot_ms: int | None = None
        """When the last snapshot was taken, in milliseconds since 1970."""
        self._must_match: Anchor | None = None

    @property
    def is_matching(self) -> bool:
        """Whether the record that it went on from has not come yet."""
        return self._must_match is not None

    def begin(self) -> Offset:
        """Begin to read, again or for the first time; return where."""
        self.cut_off()
        self._must_match = self.anchor
        if self.anchor is None:  # it may be another log by now, with positions of its own
            self.tombstones.forget_positions()
        return FIRST if self._must_match is None else self._must_match.position

    def begin_anew(self) -> None:
        """Forget where it was read to, not what was read: positions are those of another log."""
        self.tombstones.forget_positions()
        self.anchor = self._must_match = None
        self.cut_off()

    def await_fence(self, nonce: str, now: float = 0.0) -> None:
        """Note that this fence is about to be written: it is current when it reads it."""
        self.proof.wrote(nonce, now, measure=self.is_current)

    def cut_off(self) -> None:
        """What is in the log may not come here."""
        self.is_current = False
        self.proof.void()

    def read(self, position: int, body: bytes, now: float = 0.0, latest_ms: int = MAX_MS) -> Read:
        """Take in a record, at a time on the monotonic clock; later dates are doubted."""
        if self._must_match is not None:
            return self._match(Anchor.of(position, body))
        try:
            read = self._read(position, body, now, latest_ms)
        except (NotARecord, BrokenSnapshot):
            read = Read.PASSED_OVER
        except RecordTooNew:
            self.cut_off()
            raise
        self.read_count += 1
        return read

    def _read(self, position: int, body: bytes, now: float, latest_ms: int) -> Read:
        self.since_anchor += 1
        if snapshots.is_piece(body):
            self.since_snapshot += snapshots.join_piece(
                self.tombstones, body, self.doubted, latest_ms
            )
            return Read.NOTHING
        record = records.decode(body)
        if not doubt.is_possible(record, position):
            raise NotARecord(f"repeats what was not before it: {record}")
        if isinstance(record, Fence):
            self.anchor = Anchor.of(position, body)
            self.since_anchor = 0
        believed, doubted = doubt.split(record, latest_ms)
        read = Read.NOTHING if believed is None else self._take(believed, position, now)
        if doubted is not None:
            self.doubted.add(doubted)
            return Read.DOUBTED
        return read

    def _match(self, found: Anchor) -> Read:
        """It was read before, if it is the one."""
        expected, self._must_match = self._must_match, None
        if found == expected:
            return Read.NOTHING
        self.cut_off()
        return Read.ASTRAY

    def _take(self, record: Record, position: int, now: float) -> Read:
        self.since_snapshot += _cost(record)
        match record:
            case Fence(nonce):
                return self._fenced(nonce, now)
            case Taken(time_ms):
                self.since_snapshot, self.snapshot_ms = 0, time_ms
                return Read.NOTHING
            case Pause() | Resume():
                self.tombstones.add(record, position)
                return Read.SWITCHED
        self.tombstones.add(record, position)
        return Read.NOTHING

    def _fenced(self, nonce: str, now: float) -> Read:
        if not self.proof.came_back(nonce, now):
            return Read.NOTHING
        self.is_current = True
        return Read.CAUGHT_UP


def _cost(record: Record) -> int:
    """How long a record takes to read, in tombstones of a record that has many.

    RabbitMQ 3.10 hands over 4,300 a second of those that were confirmed one by one.
    """
    many = len(record.targets) if isinstance(record, records.Delete) else 1
    return many + MESSAGE_COST
