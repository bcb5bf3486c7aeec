"""Snapshots: a set of tombstones as messages, so that a new consumer need not read the whole log.

A snapshot is a number of pieces, each with a checksum, and a trailer that is written once all
pieces are confirmed. The trailer contains the number of pieces, a digest of all of them, and where
to continue in the log. A snapshot that is damaged, incomplete or older than the log is not trusted,
and the log is read from its beginning, which only costs time.

To change the format, raise VERSION: a reader that does not know it reads the log.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.doubt import Doubted
from rabbitdelay.core.deletes.snapshot_fields import are_tombstones, read_fields
from rabbitdelay.core.deletes.tombstone_table import MAX_MS, WIDTH, split_by_time
from rabbitdelay.core.deletes.tombstones import GRACE_MS, Switch, Tombstones
from rabbitdelay.core.topology.topology import LOG_SEGMENT_BYTES
from rabbitdelay.errors import RabbitDelayError

VERSION = 1
PIECE_BYTES = 512 * 1024
_CHECKSUM_BYTES = 16
_MAGIC = b"RDS1"
_HEAD = Struct(f">4s8sI{_CHECKSUM_BYTES}s")
_NAME_BYTES = 8
_SPARE_POSITIONS = 8
BUCKETS_PER_TOMBSTONE = 32
"""Maximum buckets allocated per tombstone of the first piece. An empty bucket takes 8 bytes."""


class BrokenSnapshot(RabbitDelayError):
    """A snapshot cannot be trusted; the text says why."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A fence in the log, identified by its position and its fingerprint."""

    position: int
    fingerprint: str

    @classmethod
    def of(cls, position: int, body: bytes) -> "Anchor":
        """Return the anchor for a record."""
        return cls(position, fingerprint(body))


def fingerprint(body: bytes) -> str:
    """Return a hash that distinguishes a record from any other at its position."""
    return blake2b(body, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Trailer:
    """The last message of a snapshot: how to assemble it, and where to continue in the log."""

    name: str
    """Sixteen random hex digits, different for each snapshot."""
    pieces: int
    digest: str
    """Digest of all checksums, in order."""
    buckets: int
    count: int
    time_ms: int
    floor_ms: int
    horizon_ms: int
    purges: dict[str, int]
    switches: dict[str, tuple[int, bool]]
    position: int
    """Position of a fence in the log: the snapshot contains all records before it, and maybe later
    ones."""
    fingerprint: str
    version: int = VERSION

    @property
    def anchor(self) -> Anchor:
        """The fence from which to continue in the log."""
        return Anchor(self.position, self.fingerprint)

    @property
    def span(self) -> int:
        """Maximum distance from the first piece to the trailer, in positions.

        Positions have gaps, because a stream uses one for each segment.
        """
        return self.pieces + self.pieces * PIECE_BYTES // LOG_SEGMENT_BYTES + _SPARE_POSITIONS


class Writing:
    """Writes a snapshot: its pieces, then its trailer.

    Records may be added to the set between two pieces. The snapshot may or may not contain them.
    They come after the anchor, so a reader reads them from the log.
    """

    def __init__(self, tombstones: Tombstones, anchor: Anchor, name: str, now_ms: int) -> None:
        self._set = tombstones
        self._anchor = anchor
        self._name = name
        self._now_ms = now_ms
        self._checksums = blake2b(digest_size=_CHECKSUM_BYTES)
        self._pieces = 0
        self._dumped = 0

    def next_piece(self) -> bytes | None:
        """Return the next piece; None after the last."""
        table = self._set.table
        if self._dumped >= len(table):
            return None
        # A bucket that is split in the meantime appends its new half, so no tombstone is missed.
        most = PIECE_BYTES // WIDTH
        buckets = max(1, most * len(table) // max(1, table.count))
        end = min(self._dumped + buckets, len(table))
        packed = table.dump(range(self._dumped, end))
        self._dumped = end
        return self._piece(packed)

    def _piece(self, packed: bytes) -> bytes:
        checksum = blake2b(packed, digest_size=_CHECKSUM_BYTES).digest()
        self._checksums.update(checksum)
        self._pieces += 1
        return _HEAD.pack(_MAGIC, bytes.fromhex(self._name), self._pieces - 1, checksum) + packed

    def trailer(self) -> bytes:
        """Return the trailer, to be written once all pieces are confirmed."""
        known = self._set
        trailer = Trailer(
            self._name,
            self._pieces,
            self._checksums.hexdigest(),
            len(known.table),
            known.count,
            self._now_ms,
            known.floor_ms,
            known.horizon_ms,
            dict(known.purges),
            {name: (item.position, item.is_paused) for name, item in known.switches.items()},
            self._anchor.position,
            self._anchor.fingerprint,
        )
        fields = asdict(trailer)
        return json.dumps({"trailer": fields, "checksum": _checksum(fields)}).encode()


class Reading:
    """Reads the snapshot that belongs to a trailer."""

    def __init__(
        self, trailer: Trailer, *, grace_ms: int = GRACE_MS, latest_ms: int = MAX_MS
    ) -> None:
        self.trailer = trailer
        self.doubted = Doubted()
        self._latest_ms = latest_ms
        self.tombstones = Tombstones(grace_ms=grace_ms, floor_ms=trailer.floor_ms)
        self._checksums = blake2b(digest_size=_CHECKSUM_BYTES)
        self._read = 0

    @property
    def is_complete(self) -> bool:
        """Whether all pieces have been read."""
        return self._read == self.trailer.pieces

    def take(self, body: bytes) -> None:
        """Read the next piece; ignore pieces of other snapshots."""
        name, number, checksum, packed = _read_piece(body)
        if name != self.trailer.name:
            return
        if number != self._read:
            raise BrokenSnapshot(f"piece {self._read} is missing")
        if blake2b(packed, digest_size=_CHECKSUM_BYTES).digest() != checksum:
            raise BrokenSnapshot(f"piece {number} is damaged")
        self._checksums.update(checksum)
        if self._read == 0:
            self._make_room(len(packed) // WIDTH)
        self._read += 1
        sure, doubted = split_by_time(packed, self._latest_ms)
        self.tombstones.table.load(sure)
        self.doubted.load(doubted)

    def _make_room(self, count: int) -> None:
        """Allocate the buckets that the trailer names, up to a limit set by the first piece.

        Loading a million tombstones takes 0.8 s with all buckets allocated, and 4 s without.
        """
        self.tombstones.table.make_room(min(self.trailer.buckets, BUCKETS_PER_TOMBSTONE * count))

    def result(self) -> Tombstones:
        """Return the set; raise BrokenSnapshot if it is not complete."""
        if not self.is_complete or self._checksums.hexdigest() != self.trailer.digest:
            raise BrokenSnapshot("its pieces do not match the trailer")
        known, trailer = self.tombstones, self.trailer
        known.raise_horizon(trailer.horizon_ms)
        for topic, time_ms in trailer.purges.items():
            known.purge(topic, time_ms)
        for topic, (position, is_paused) in trailer.switches.items():
            # Later switches are read from the log, where a position cannot be forged.
            if position <= trailer.position:
                known.switch(topic, Switch(position, is_paused))
        self.doubted.doubt_purges(known, self._latest_ms)
        return known


def read_trailer(body: bytes) -> Trailer:
    """Return the trailer in a body; raise BrokenSnapshot if it cannot be trusted."""
    try:
        whole = json.loads(body)
        fields = whole["trailer"]
        if whole["checksum"] != _checksum(fields):
            raise BrokenSnapshot("its trailer is damaged")
        if fields["version"] != VERSION:
            raise BrokenSnapshot(f"version {fields['version']!r:.20} is not supported")
        return Trailer(**read_fields(fields))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BrokenSnapshot(f"not a trailer: {error}") from None


def _checksum(fields: object) -> str:
    return fingerprint(json.dumps(fields, sort_keys=True).encode())


def is_piece(body: bytes) -> bool:
    """Whether a body is a piece of a snapshot."""
    return body.startswith(_MAGIC)


def pieces_of(tombstones: Tombstones) -> Iterator[bytes]:
    """Yield a whole set as pieces without a trailer, which can be joined with any other set."""
    writing = Writing(tombstones, Anchor(0, ""), "0" * 2 * _NAME_BYTES, 0)
    while (piece := writing.next_piece()) is not None:
        yield piece


def doubted_again(doubted: Doubted) -> list[bytes]:
    """Return the doubted records, to be written again, because another clock may trust them."""
    if doubted.is_empty:
        return []
    purges = [records.encode(purge) for purge in doubted.purges()]
    table = doubted.tombstones.table
    return [*purges, *(pieces_of(doubted.tombstones) if table.count else ())]


def join_piece(
    tombstones: Tombstones, body: bytes, doubted: Doubted | None = None, latest_ms: int = MAX_MS
) -> int:
    """Join a piece with a set, except for tombstones to doubt; return its number of tombstones."""
    _, number, checksum, packed = _read_piece(body)
    if blake2b(packed, digest_size=_CHECKSUM_BYTES).digest() != checksum:
        raise BrokenSnapshot(f"piece {number} is damaged")
    sure, late = split_by_time(packed, latest_ms)
    tombstones.table.load(sure)
    if doubted is not None:
        doubted.load(late)
    return len(packed) // WIDTH


def _read_piece(body: bytes) -> tuple[str, int, bytes, bytes]:
    try:
        magic, name, number, checksum = _HEAD.unpack_from(body)
    except StructError:
        raise BrokenSnapshot("not a piece: too short") from None
    packed = body[_HEAD.size :]
    if magic != _MAGIC or not are_tombstones(packed):
        raise BrokenSnapshot("not a piece: invalid bytes")
    return name.hex(), number, checksum, packed
