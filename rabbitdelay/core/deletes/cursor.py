"""Follow the log of deletes: where to read, and when a consumer may trust what it has read.

A consumer reads from a snapshot's anchor, or from the beginning, up to a fence that it wrote
itself. Then it is current, and jobs may be delivered. An anchor is a fence that was read before,
and no two fences are equal. After a reconnect the anchor is read again before anything that follows
it. If another record is at its position, the stream was deleted and this is another log, which is
read from its beginning. What was known is still true, and is written into the new log.

This file owns three rules:

1. No job is delivered unless `is_current`, which any interruption clears at once.
2. A position is never trusted by its number alone.
3. A current consumer may be cut off without noticing: delivery also requires a fresh `proof`.
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
    SnapshotTaken,
)
from rabbitdelay.core.deletes.snapshots import Anchor, BrokenSnapshot
from rabbitdelay.core.deletes.tombstone_table import MAX_MS
from rabbitdelay.core.deletes.tombstones import Tombstones

FIRST = "first"
MESSAGE_COST = 10
Offset = int | str
"""Stream offset to read from: a position, or a keyword of the broker such as `first`."""


class Read(Enum):
    """The consequence of reading a record."""

    NOTHING = auto()
    """The record has been processed; nothing else follows."""
    CAUGHT_UP = auto()
    """The record was the awaited fence: everything before it has been read."""
    SWITCHED = auto()
    """A topic was paused or resumed."""
    OTHER_LOG = auto()
    """This is not the log that was read before: read it from its beginning."""
    SKIPPED = auto()
    """The record is invalid, or cannot be at its position."""
    DOUBTED = auto()
    """The record, or a part of it, is dated too far ahead to be trusted."""


class Following:
    """The state of one consumer that follows the log."""

    def __init__(self, tombstones: Tombstones, anchor: Anchor | None = None) -> None:
        self.tombstones = tombstones
        self.anchor = anchor
        """The last fence that was read, written by any consumer."""
        self.doubted = Doubted()
        """Records that were read and are not trusted."""
        self.is_current = False
        self.proof = Proof()
        """Proof that the consumer was current, and at which time."""
        self.read_count = 0
        self.since_anchor = 0
        """Number of records read after the anchor."""
        self.since_snapshot = 0
        """Cost of reading everything after the last snapshot, in tombstones of a packed record."""
        self.snapshot_ms: int | None = None
        """Time of the last snapshot, in milliseconds since 1970."""
        self._must_match: Anchor | None = None

    @property
    def is_matching(self) -> bool:
        """Whether the anchor has yet to be read again."""
        return self._must_match is not None

    def begin(self) -> Offset:
        """Start or restart reading; return the offset."""
        self.cut_off()
        self._must_match = self.anchor
        if self.anchor is None:  # this may be another log, with other positions
            self.tombstones.forget_positions()
        return FIRST if self._must_match is None else self._must_match.position

    def start_over(self) -> None:
        """Forget the position in the log, but not the tombstones, because this is another log."""
        self.tombstones.forget_positions()
        self.anchor = self._must_match = None
        self.cut_off()

    def await_fence(self, nonce: str, now: float = 0.0) -> None:
        """Record that this fence is about to be written; reading it makes the consumer current."""
        self.proof.wrote(nonce, now, measure=self.is_current)

    def cut_off(self) -> None:
        """Clear `is_current`, because later records may not arrive."""
        self.is_current = False
        self.proof.void()

    def read(self, position: int, body: bytes, now: float = 0.0, latest_ms: int = MAX_MS) -> Read:
        """Read a record at a monotonic time; records dated after `latest_ms` are doubted."""
        if self._must_match is not None:
            return self._match(Anchor.of(position, body))
        try:
            read = self._read(position, body, now, latest_ms)
        except (NotARecord, BrokenSnapshot):
            read = Read.SKIPPED
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
            raise NotARecord(f"repeats a pause from a position that is not before it: {record}")
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
        """Compare the first record with the anchor."""
        expected, self._must_match = self._must_match, None
        if found == expected:
            return Read.NOTHING
        self.cut_off()
        return Read.OTHER_LOG

    def _take(self, record: Record, position: int, now: float) -> Read:
        self.since_snapshot += _cost(record)
        match record:
            case Fence(nonce):
                return self._fenced(nonce, now)
            case SnapshotTaken(time_ms):
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
    """Return the cost of reading a record, in tombstones of a packed record.

    RabbitMQ 3.10 delivers 4,300 records per second if they were confirmed one by one.
    """
    many = len(record.jobs) if isinstance(record, records.Delete) else 1
    return many + MESSAGE_COST
