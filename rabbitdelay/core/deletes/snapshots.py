"""Snapshots: a set of tombstones as messages, so that starting does not mean reading all history.

A snapshot is a number of pieces, each with a checksum, and a trailer that is written when every
piece is safe: it tells how many there are, what all of them together must be, and where to go on
in the log. It may be broken, half written, or older than the log: then it is not trusted, and the
log is read from its beginning. Nothing but time is lost.

To change the bytes, raise VERSION: who does not know it reads the log.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.doubt import Doubted
from rabbitdelay.core.deletes.snapshot_fields import are_stones, read_fields
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
ROOM_A_STONE = 32
"""Most buckets that are made for each stone of the first piece. An empty one takes 8 bytes."""


class BrokenSnapshot(RabbitDelayError):
    """A snapshot is not to be trusted; it says why."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A fence in the log, by its position and by what it says."""

    position: int
    fingerprint: str

    @classmethod
    def of(cls, position: int, body: bytes) -> "Anchor":
        """The anchor that a record is."""
        return cls(position, fingerprint(body))


def fingerprint(body: bytes) -> str:
    """What tells a record from any other that may be at its position."""
    return blake2b(body, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Trailer:
    """What is written last: how a snapshot is put together, and where the log goes on."""

    name: str
    """Sixteen hex digits, another for each snapshot."""
    pieces: int
    digest: str
    """Of all the checksums, in order."""
    buckets: int
    count: int
    time_ms: int
    floor_ms: int
    horizon_ms: int
    purges: dict[str, int]
    switches: dict[str, tuple[int, bool]]
    position: int
    """Of a fence in the log: all before it is in the snapshot, and some behind it may be."""
    fingerprint: str
    version: int = VERSION

    @property
    def anchor(self) -> Anchor:
        """Where to go on in the log."""
        return Anchor(self.position, self.fingerprint)

    @property
    def span(self) -> int:
        """How many positions before the trailer its first piece is at most.

        Positions have gaps: a stream uses one up whenever it begins a segment.
        """
        return self.pieces + self.pieces * PIECE_BYTES // LOG_SEGMENT_BYTES + _SPARE_POSITIONS


class Writing:
    """A snapshot that is being written: its pieces, and then its trailer.

    The set may be added to meanwhile, between two pieces. What is added then may be in it or not:
    it comes after the anchor, and is read from the log again.
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
        """The next piece; None when there is none."""
        table = self._set.stones
        if self._dumped >= len(table):
            return None
        # What is split off a bucket meanwhile comes behind the last: it is not missed.
        most = PIECE_BYTES // WIDTH
        buckets = max(1, most * len(table) // max(1, table.count))
        end = min(self._dumped + buckets, len(table))
        stones = table.dump(range(self._dumped, end))
        self._dumped = end
        return self._piece(stones)

    def _piece(self, stones: bytes) -> bytes:
        checksum = blake2b(stones, digest_size=_CHECKSUM_BYTES).digest()
        self._checksums.update(checksum)
        self._pieces += 1
        return _HEAD.pack(_MAGIC, bytes.fromhex(self._name), self._pieces - 1, checksum) + stones

    def trailer(self) -> bytes:
        """What is written when all pieces are safe."""
        known = self._set
        trailer = Trailer(
            self._name,
            self._pieces,
            self._checksums.hexdigest(),
            len(known.stones),
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
    """A snapshot that is being read, by its trailer."""

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
        """Whether all pieces have come."""
        return self._read == self.trailer.pieces

    def take(self, body: bytes) -> None:
        """Read the next piece; those of other snapshots are passed over."""
        name, number, checksum, stones = _read_piece(body)
        if name != self.trailer.name:
            return
        if number != self._read:
            raise BrokenSnapshot(f"piece {self._read} is missing")
        if blake2b(stones, digest_size=_CHECKSUM_BYTES).digest() != checksum:
            raise BrokenSnapshot(f"piece {number} is damaged")
        self._checksums.update(checksum)
        if self._read == 0:
            self._make_room(len(stones) // WIDTH)
        self._read += 1
        sure, doubted = split_by_time(stones, self._latest_ms)
        self.tombstones.stones.load(sure)
        self.doubted.load(doubted)

    def _make_room(self, count: int) -> None:
        """Make the buckets that the trailer names, as far as the first piece bears it out.

        Loading a million stones takes 0.8 s with all buckets made, and 4 s without.
        """
        self.tombstones.stones.make_room(min(self.trailer.buckets, ROOM_A_STONE * count))

    def result(self) -> Tombstones:
        """The set, when all of it was read."""
        if not self.is_complete or self._checksums.hexdigest() != self.trailer.digest:
            raise BrokenSnapshot("its pieces do not make up the whole")
        known, trailer = self.tombstones, self.trailer
        known.raise_horizon(trailer.horizon_ms)
        for topic, time_ms in trailer.purges.items():
            known.purge(topic, time_ms)
        for topic, (position, is_paused) in trailer.switches.items():
            # What is behind the anchor is read from the log, where its position cannot be forged.
            if position <= trailer.position:
                known.switch(topic, Switch(position, is_paused))
        self.doubted.doubt_purges(known, self._latest_ms)
        return known


def read_trailer(body: bytes) -> Trailer:
    """Return the trailer in a body; BrokenSnapshot says why it cannot be trusted."""
    try:
        whole = json.loads(body)
        fields = whole["trailer"]
        if whole["checksum"] != _checksum(fields):
            raise BrokenSnapshot("its trailer is damaged")
        if fields["version"] != VERSION:
            raise BrokenSnapshot(f"version {fields['version']!r:.20} is not known here")
        return Trailer(**read_fields(fields))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BrokenSnapshot(f"no trailer: {error}") from None


def _checksum(fields: object) -> str:
    return fingerprint(json.dumps(fields, sort_keys=True).encode())


def is_piece(body: bytes) -> bool:
    """Whether a body is a piece of some snapshot."""
    return body.startswith(_MAGIC)


def pieces_of(tombstones: Tombstones) -> Iterator[bytes]:
    """A whole set, at once, in pieces without a trailer: to be joined with any other."""
    writing = Writing(tombstones, Anchor(0, ""), "0" * 2 * _NAME_BYTES, 0)
    while (piece := writing.next_piece()) is not None:
        yield piece


def doubted_again(doubted: Doubted) -> list[bytes]:
    """What a reader doubts, to be written again: the clock of another may be right."""
    if doubted.is_empty:
        return []
    purges = [records.encode(purge) for purge in doubted.purges()]
    stones = doubted.tombstones.stones
    return [*purges, *(pieces_of(doubted.tombstones) if stones.count else ())]


def join_piece(
    tombstones: Tombstones, body: bytes, doubted: Doubted | None = None, latest_ms: int = MAX_MS
) -> int:
    """Join a piece with a set, but for stones to be doubted; return how many stones it has."""
    _, number, checksum, stones = _read_piece(body)
    if blake2b(stones, digest_size=_CHECKSUM_BYTES).digest() != checksum:
        raise BrokenSnapshot(f"piece {number} is damaged")
    sure, late = split_by_time(stones, latest_ms)
    tombstones.stones.load(sure)
    if doubted is not None:
        doubted.load(late)
    return len(stones) // WIDTH


def _read_piece(body: bytes) -> tuple[str, int, bytes, bytes]:
    try:
        magic, name, number, checksum = _HEAD.unpack_from(body)
    except StructError:
        raise BrokenSnapshot("no piece: too short") from None
    stones = body[_HEAD.size :]
    if magic != _MAGIC or not are_stones(stones):
        raise BrokenSnapshot("no piece: not its bytes")
    return name.hex(), number, checksum, stones
