"""A compact hash table of tombstones by id, for millions of deleted jobs.

A bucket of the table is a bytes object with its tombstones one after the other, each WIDTH bytes,
and is searched as text. A tombstone takes about 52 bytes, compared with 150 in a dict of texts. The
table grows bucket by bucket (linear hashing), so no single add takes long.

There are two kinds of tombstones. Both contain the last moment at which they are needed:

    before  deletes the copies of its id that were put at or before a time, except those spared by
            the order of tokens (see `Tombstones`); an id has at most one: the highest
    exact   deletes the copies of its id with one token

This file owns two rules:

1. Adding is a join: for one key, the higher order and the later last moment win. So adding is
   idempotent, and its result does not depend on the order.
2. Snapshots contain the bytes of tombstones. To change the format, raise `snapshots.VERSION`.
"""

from collections.abc import Iterator
from enum import Enum, auto
from hashlib import blake2b
from itertools import groupby
from zlib import crc32

ID_BYTES = 16
_QUICK_BYTES = 4
_SURE_BYTES = ID_BYTES - _QUICK_BYTES
TOKEN_BYTES = 8
_TIME_BYTES = 6
_BEFORE, _EXACT = b"B", b"T"
_ORDER_BYTES = _TIME_BYTES + 1 + TOKEN_BYTES
KIND_AT = ID_BYTES
KINDS = frozenset(_BEFORE + _EXACT)
_ORDER_AT = KIND_AT + 1
ALL_TOKENS_AT = _ORDER_AT + _TIME_BYTES
_TOKEN_AT = _ORDER_AT + _TIME_BYTES + 1
_LAST_AT = _ORDER_AT + _ORDER_BYTES
WIDTH = _LAST_AT + _TIME_BYTES
_NO_TIME = bytes(_TIME_BYTES + 1)
_ALL_TOKENS = b"\x01" + bytes(TOKEN_BYTES)
_ONE_TOKEN = b"\x00"
MAX_MS = (1 << 8 * _TIME_BYTES) - 1

FEWEST_BUCKETS = 1 << 10
TOMBSTONES_PER_BUCKET = 4
_OVERHEAD_BYTES = 33 + 8
"""Memory of a bucket in CPython in addition to its bytes: the object, and its entry in the list."""


def id_key(id: str) -> bytes:
    """Return the key of an id: a quick hash to select the bucket, and 96 bits of a strong one."""
    encoded = _encoded(id)
    quick = crc32(encoded).to_bytes(_QUICK_BYTES, "little")
    return quick + blake2b(encoded, digest_size=_SURE_BYTES).digest()


def _encoded(id: str) -> bytes:
    """Return an id as bytes, even if it is not valid UTF-8, as in messages of other programs."""
    return id.encode("utf-8", "surrogatepass")


def token_key(token: str) -> bytes:
    """Return the key of a token, which is unique among those of one id."""
    return blake2b(token.encode(), digest_size=TOKEN_BYTES).digest()


class Kill(Enum):
    """Why a tombstone deletes a job."""

    BY_TIME = auto()
    """Its id was deleted at or after its put time."""
    BY_TOKEN = auto()
    """Its token was deleted."""
    BY_ANOTHER = auto()
    """Another job replaced it under its id."""


def before(id: str, time_ms: int, last_ms: int) -> bytes:
    """Return a tombstone that deletes copies put at or before a time."""
    return id_key(id) + _BEFORE + _time(time_ms) + _ALL_TOKENS + _time(last_ms)


def all_but(id: str, token: str, time_ms: int, last_ms: int) -> bytes:
    """Return a tombstone that deletes copies put before a token, or at once with it and lower."""
    order = _time(time_ms) + _ONE_TOKEN + token_key(token)
    return id_key(id) + _BEFORE + order + _time(last_ms)


def exact(id: str, token: str, last_ms: int) -> bytes:
    """Return a tombstone that deletes the copies with one token."""
    return id_key(id) + _EXACT + _NO_TIME + token_key(token) + _time(last_ms)


def split_by_time(dumped: bytes, latest_ms: int) -> tuple[bytes, bytes]:
    """Return the tombstones that contain no time after `latest_ms`, and the others."""
    latest = _time(latest_ms)
    late = {
        tombstone
        for tombstone in _each(dumped)
        if tombstone[_ORDER_AT : _ORDER_AT + _TIME_BYTES] > latest
    }
    if not late:
        return dumped, b""
    return b"".join(tombstone for tombstone in _each(dumped) if tombstone not in late), b"".join(
        late
    )


def last_ms(tombstone: bytes) -> int:
    """Return the last moment at which a tombstone is needed."""
    return _number(tombstone[_LAST_AT:])


class TombstoneTable:
    """The table of tombstones."""

    __slots__ = ("_buckets", "_low", "count")

    def __init__(self) -> None:
        self._low = FEWEST_BUCKETS
        """A power of two: buckets from this index on contain the split-off halves of earlier
        ones."""
        self._buckets: list[bytes] = [b""] * FEWEST_BUCKETS
        self.count = 0

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use, in bytes."""
        return self.count * WIDTH + len(self._buckets) * _OVERHEAD_BYTES

    def add(self, tombstone: bytes) -> None:
        """Add a tombstone, or join it with an existing one."""
        index = self._index(tombstone)
        bucket = self._buckets[index]
        key = tombstone[: _ORDER_AT if tombstone[KIND_AT] == _BEFORE[0] else _LAST_AT]
        at = _find(bucket, key)
        if at >= 0:
            there = bucket[at : at + WIDTH]
            self._buckets[index] = bucket[:at] + _join(there, tombstone) + bucket[at + WIDTH :]
            return
        self._buckets[index] = bucket + tombstone
        self.count += 1
        if self._is_crowded:
            self._split()

    def kill(self, id: str, put_ms: int, token: str) -> Kill | None:
        """Return why the copy of an id with this put time and token is deleted; None if it is not.

        Called for every job that is delivered, so hashes are only computed when they decide.
        """
        bucket, key = self._look_for(id)
        if not bucket:
            return None
        at = _find(bucket, key + _BEFORE)
        if at >= 0:
            moment, reach = _time(put_ms) + _ONE_TOKEN, bucket[at + _ORDER_AT : at + _TOKEN_AT]
            if moment < reach or (
                moment == reach and token_key(token) < bucket[at + _TOKEN_AT : at + _LAST_AT]
            ):
                return Kill.BY_ANOTHER if reach.endswith(_ONE_TOKEN) else Kill.BY_TIME
        if key + _EXACT not in bucket:
            return None
        at = _find(bucket, key + _EXACT + _NO_TIME + token_key(token))
        return Kill.BY_TOKEN if at >= 0 else None

    def of(self, id: str) -> list[bytes]:
        """Return the tombstones of an id."""
        bucket, key = self._look_for(id)
        return [tombstone for tombstone in _each(bucket) if tombstone.startswith(key)]

    def oldest_ms(self) -> int | None:
        """Return the earliest time in any tombstone; None if there is none.

        Reads the whole table.
        """
        first = min(
            (
                tombstone[_ORDER_AT : _ORDER_AT + _TIME_BYTES]
                for bucket in self._buckets
                for tombstone in _each(bucket)
                if tombstone[KIND_AT] == _BEFORE[0]
            ),
            default=None,
        )
        return None if first is None else _number(first)

    def expire(self, last_ms: int, buckets: range | None = None) -> None:
        """Remove the tombstones that are not needed after a moment, from some buckets or all."""
        last = _time(last_ms)
        for index in range(len(self._buckets)) if buckets is None else buckets:
            bucket = self._buckets[index]
            kept = [tombstone for tombstone in _each(bucket) if tombstone[_LAST_AT:] >= last]
            if len(kept) * WIDTH < len(bucket):
                self.count -= len(bucket) // WIDTH - len(kept)
                self._buckets[index] = b"".join(kept)

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._buckets)

    def dump(self, buckets: range) -> bytes:
        """Return the tombstones of some buckets, one after the other."""
        return b"".join(self._buckets[index] for index in buckets)

    def load(self, tombstones: bytes) -> None:
        """Add dumped tombstones; those of an empty bucket are stored at once."""
        for index, group in groupby(_each(tombstones), self._index):
            if self._buckets[index]:
                for tombstone in group:
                    self.add(tombstone)
            else:
                bucket = self._buckets[index] = b"".join(group)
                self.count += len(bucket) // WIDTH
        while self._is_crowded:
            self._split()

    def make_room(self, buckets: int) -> None:
        """Allocate as many buckets as are about to be loaded, if the table is empty."""
        if not self.count:
            buckets = max(FEWEST_BUCKETS, buckets)
            self._low = 1 << buckets.bit_length() - 1
            self._buckets = [b""] * buckets

    def _look_for(self, id: str) -> tuple[bytes, bytes]:
        """Return the bucket and the key of an id; both empty if the quick hash rules it out."""
        if self.count == 0:
            return b"", b""
        encoded = _encoded(id)
        number = crc32(encoded)
        index = number & (2 * self._low - 1)  # inlined from `_place` for speed
        bucket = self._buckets[index if index < len(self._buckets) else index - self._low]
        quick = number.to_bytes(_QUICK_BYTES, "little")
        if quick not in bucket:
            return b"", b""
        return bucket, quick + blake2b(encoded, digest_size=_SURE_BYTES).digest()

    @property
    def _is_crowded(self) -> bool:
        return self.count > TOMBSTONES_PER_BUCKET * len(self._buckets)

    def _index(self, tombstone: bytes) -> int:
        return self._place(int.from_bytes(tombstone[:_QUICK_BYTES], "little"))

    def _place(self, number: int) -> int:
        index = number & (2 * self._low - 1)
        return index if index < len(self._buckets) else index - self._low

    def _split(self) -> None:
        """Split one bucket into two."""
        index = len(self._buckets) - self._low
        tombstones = self._buckets[index]
        self._buckets.append(b"")
        if len(self._buckets) == 2 * self._low:
            self._low *= 2
        sorted_out: dict[int, list[bytes]] = {index: [], len(self._buckets) - 1: []}
        for tombstone in _each(tombstones):
            sorted_out[self._index(tombstone)].append(tombstone)
        for place, moved in sorted_out.items():
            self._buckets[place] = b"".join(moved)


def _find(bucket: bytes, key: bytes) -> int:
    """Return the offset of the tombstone that begins with a key, or -1.

    Offsets are multiples of WIDTH.
    """
    at = bucket.find(key)
    while at >= 0 and at % WIDTH:
        at = bucket.find(key, at + 1)
    return at


def _join(one: bytes, other: bytes) -> bytes:
    order = max(one[_ORDER_AT:_LAST_AT], other[_ORDER_AT:_LAST_AT])
    return one[:_ORDER_AT] + order + max(one[_LAST_AT:], other[_LAST_AT:])


def _each(bucket: bytes) -> Iterator[bytes]:
    return (bucket[at : at + WIDTH] for at in range(0, len(bucket), WIDTH))


def _time(ms: int) -> bytes:
    if not 0 <= ms <= MAX_MS:
        ms = 0 if ms < 0 else MAX_MS
    return ms.to_bytes(_TIME_BYTES, "big")


def _number(time: bytes) -> int:
    return int.from_bytes(time, "big")
