"""Forged trailers and pieces: readers refuse them as broken, at little cost."""

import json
import tracemalloc
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbitdelay.core.deletes import snapshots, tombstone_table
from rabbitdelay.core.deletes.records import Delete, Pause, Purge
from rabbitdelay.core.deletes.snapshots import (
    Anchor,
    BrokenSnapshot,
    Reading,
    Writing,
    read_trailer,
)
from rabbitdelay.core.deletes.tombstones import Tombstones
from rabbitdelay.core.topology.ladder import MAX_DELAY_MS

ANCHOR = Anchor.of(41, b'{"fence":"a"}')
MUCH_BYTES = 4_000_000

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def small_set() -> Tombstones:
    known = Tombstones()
    known.add(Delete(("a", "b"), 1_731_500_000_000), 1)
    known.add(Purge("x", 7), 2)
    known.add(Pause("y"), 3)
    return known


def written() -> tuple[bytes, dict[str, Any]]:
    """Return the only piece of a small snapshot, and the fields of its trailer."""
    writing = Writing(small_set(), ANCHOR, "00112233aabbccdd", 1_731_500_000_000)
    piece = writing.next_piece()
    assert piece is not None
    return piece, json.loads(writing.trailer())["trailer"]


PIECE, FIELDS = written()


def forged(**changes: object) -> bytes:
    """Return a trailer with other fields and a matching checksum."""
    fields = FIELDS | changes
    body = {"trailer": fields, "checksum": snapshots._checksum(fields)}
    return json.dumps(body).encode()


def read(trailer: bytes) -> Tombstones:
    reading = Reading(read_trailer(trailer))
    reading.take(PIECE)
    return reading.result()


def test_an_unchanged_trailer_is_read() -> None:
    """Without this, the tests of forged trailers would show nothing."""
    assert read(forged()).count == 3


WRONG: list[dict[str, object]] = [
    {"name": "00112233aabbccd"},
    {"name": "00112233AABBCCDD"},
    {"name": "00112233aabbccdd\n"},
    {"name": 7},
    {"pieces": -1},
    {"pieces": 1 << 32},
    {"pieces": "1"},
    {"pieces": True},
    {"pieces": 1.0},
    {"digest": None},
    {"digest": "00"},
    {"buckets": -1},
    {"buckets": 1 << 63},
    {"buckets": []},
    {"count": "3"},
    {"count": 1e300},
    {"time_ms": -1},
    {"time_ms": 1 << 48},
    {"floor_ms": 1 << 48},
    {"floor_ms": "0"},
    {"floor_ms": None},
    {"horizon_ms": MAX_DELAY_MS + 1},
    {"horizon_ms": -1},
    {"purges": None},
    {"purges": []},
    {"purges": {"x": "7"}},
    {"purges": {"x": 1 << 48}},
    {"purges": {"x": -1}},
    {"purges": {"\ud800": 7}},
    {"switches": []},
    {"switches": {"y": 3}},
    {"switches": {"y": [3]}},
    {"switches": {"y": [3, 1]}},
    {"switches": {"y": ["3", True]}},
    {"switches": {"y": [1 << 63, True]}},
    {"switches": {"y": [-2, True]}},
    {"position": 1 << 63},
    {"position": -1},
    {"position": "first"},
    {"position": None},
    {"fingerprint": 0},
    {"fingerprint": "zz" * 8},
    {"version": True},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_field_of_a_wrong_type_or_out_of_range_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BrokenSnapshot):
        read_trailer(forged(**change))


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_refused(name: str) -> None:
    fields = {key: value for key, value in FIELDS.items() if key != name}
    body = {"trailer": fields, "checksum": snapshots._checksum(fields)}
    with pytest.raises(BrokenSnapshot):
        read_trailer(json.dumps(body).encode())


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), JSON, min_size=1))
def test_a_forged_trailer_is_read_or_refused_and_costs_little(changes: dict[str, Any]) -> None:
    trailer = forged(**changes)
    tracemalloc.start()
    try:
        read(trailer)
    except BrokenSnapshot:
        pass
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < MUCH_BYTES


@given(JSON)
def test_any_json_is_refused(value: object) -> None:
    fields = {"trailer": value, "checksum": snapshots._checksum(value)}
    for body in (value, fields):
        with pytest.raises(BrokenSnapshot):
            read_trailer(json.dumps(body).encode())


def test_two_hundred_million_buckets_take_no_memory() -> None:
    trailer = forged(buckets=200_000_000)
    tracemalloc.start()
    known = read(trailer)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert known.count == 3
    assert peak_bytes < MUCH_BYTES


def test_a_pause_after_the_anchor_is_ignored() -> None:
    """A pause with a forged position beyond the log could never be resumed."""
    known = read(forged(switches={"y": [ANCHOR.position, True], "z": [1 << 62, True]}))
    assert known.paused == {"y"}


@given(st.binary(max_size=4 * tombstone_table.WIDTH))
def test_a_piece_with_an_unknown_kind_is_refused(body: bytes) -> None:
    known = Tombstones()
    piece = with_checksum(body)
    whole = [
        body[at : at + tombstone_table.WIDTH] for at in range(0, len(body), tombstone_table.WIDTH)
    ]
    if all(
        len(one) == tombstone_table.WIDTH and one[16:17] in b"BT" and one[23] < 2 for one in whole
    ):
        assert snapshots.join_piece(known, piece) == len(whole)
    else:
        with pytest.raises(BrokenSnapshot):
            snapshots.join_piece(known, piece)
        assert known.count == 0


def with_checksum(body: bytes) -> bytes:
    checksum = blake2b(body, digest_size=16).digest()
    return snapshots._HEAD.pack(b"RDS1", bytes(8), 0, checksum) + body
