"""Snapshots: a set round-trips, and an incomplete snapshot is never trusted."""

import json
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbitdelay.core.deletes import snapshots
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
from rabbitdelay.core.deletes.snapshots import (
    Anchor,
    BrokenSnapshot,
    Reading,
    Writing,
    is_piece,
    join_piece,
    pieces_of,
    read_trailer,
)
from rabbitdelay.core.deletes.tombstone_table import WIDTH, TombstoneTable
from rabbitdelay.core.deletes.tombstones import Tombstones
from rabbitdelay.core.topology.ladder import DAY_MS

NAME = "00112233aabbccdd"
ANCHOR = Anchor.of(41, b'{"pause":"mail"}')
NOW_MS = 1_731_500_000_000
SMALL_MS = st.integers(0, 4)
ID, TOPIC, TOKEN = st.sampled_from("abc"), st.sampled_from("xyü"), st.sampled_from("rst")
TARGETS = st.lists(ID | st.builds(Exact, ID, TOKEN, SMALL_MS), max_size=3).map(tuple)
RECORDS = st.one_of(
    st.builds(Delete, TARGETS, SMALL_MS, st.none() | SMALL_MS),
    st.builds(Keep, ID, TOKEN, SMALL_MS, SMALL_MS, st.lists(TOKEN, max_size=2).map(tuple)),
    st.builds(Purge, TOPIC, SMALL_MS),
    st.builds(Pause, TOPIC),
    st.builds(Resume, TOPIC),
    st.builds(Horizon, st.integers(0, 1_000 * DAY_MS)),
)
LOGS = st.lists(RECORDS, max_size=8)
IDS = [f"order-{number}" for number in range(30_000)]
"""More than fit into two pieces."""


def set_of(*log: Record, floor_ms: int = 0) -> Tombstones:
    known = Tombstones(floor_ms=floor_ms)
    for position, record in enumerate(log):
        known.add(record, position)
    return known


def large() -> Tombstones:
    return set_of(Delete(tuple(IDS), NOW_MS), Purge("x", 7), Pause("y"), Horizon(99 * DAY_MS))


def written(known: Tombstones, name: str = NAME) -> tuple[list[bytes], bytes]:
    """Return all pieces of a snapshot, and its trailer."""
    writing = Writing(known, ANCHOR, name, NOW_MS)
    pieces = list(iter(writing.next_piece, None))
    return [piece for piece in pieces if piece is not None], writing.trailer()


def read(pieces: list[bytes], trailer: bytes) -> Tombstones:
    reading = Reading(read_trailer(trailer))
    for piece in pieces:
        reading.take(piece)
    return reading.result()


def tombstones_in(table: TombstoneTable) -> set[bytes]:
    dumped = table.dump(range(len(table)))
    return {dumped[at : at + WIDTH] for at in range(0, len(dumped), WIDTH)}


def everything(known: Tombstones) -> tuple[object, ...]:
    """Return everything that determines a set's answers."""
    told = (known.purges, known.switches, known.horizon_ms, known.floor_ms, known.count)
    return (tombstones_in(known.table), *told)


def answers(known: Tombstones) -> Iterator[object]:
    for topic in "xyü":
        yield known.is_paused(topic)
        for name in "abc":
            yield [known.kills(topic, name, token, put) for token in "rst" for put in range(6)]
    yield [known.is_sure_of(due_ms) for due_ms in range(6)]


# Complete snapshots


@settings(deadline=None)
@given(LOGS, SMALL_MS)
def test_a_set_round_trips(log: list[Record], floor_ms: int) -> None:
    known = set_of(*log, floor_ms=floor_ms)
    restored = read(*written(known))
    assert everything(restored) == everything(known)
    assert list(answers(restored)) == list(answers(known))


def test_a_large_set_is_many_pieces() -> None:
    known = large()
    pieces, trailer = written(known)
    assert len(pieces) >= 3
    assert all(is_piece(piece) and len(piece) < 2 * snapshots.PIECE_BYTES for piece in pieces)
    restored = read(pieces, trailer)
    assert everything(restored) == everything(known)
    assert len(restored.table) == len(known.table)


def test_a_restored_set_behaves_like_the_original() -> None:
    known = large()
    restored = read(*written(known))
    more = Delete(tuple(f"more-{number}" for number in range(20_000)), NOW_MS)
    for one in (known, restored):
        one.add(more, 50)
        one.add(Resume("y"), 51)
        one.expire(NOW_MS + 40 * DAY_MS)
    assert everything(restored) == everything(known)
    assert restored.paused == set()


def test_the_trailer_says_where_to_continue_in_the_log() -> None:
    trailer = read_trailer(written(large())[1])
    assert trailer.anchor == ANCHOR
    assert (trailer.name, trailer.time_ms, trailer.count) == (NAME, NOW_MS, len(IDS) + 1)


def test_an_anchor_is_a_position_and_a_fingerprint() -> None:
    assert Anchor.of(1, b"a") == Anchor.of(1, b"a")
    assert len({Anchor.of(1, b"a"), Anchor.of(1, b"b"), Anchor.of(2, b"a")}) == 3


# While it is written


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=4), st.booleans())
def test_adding_between_two_pieces_loses_nothing(
    growth: list[int],
    is_expired: bool,  # noqa: FBT001 - drawn
) -> None:
    known = large()
    at_the_anchor, writing, pieces = tombstones_in(known.table), Writing(known, ANCHOR, NAME, 0), []
    while (piece := writing.next_piece()) is not None:
        pieces.append(piece)
        many = growth[len(pieces) % len(growth)] if len(pieces) < 8 else 0
        known.add(Delete(tuple(f"new-{len(pieces)}-{number}" for number in range(many)), NOW_MS))
    if is_expired:
        known.expire(NOW_MS)
    restored = read(pieces, writing.trailer())
    assert at_the_anchor <= tombstones_in(restored.table) <= tombstones_in(known.table)


def test_a_snapshot_and_the_rest_of_the_log_equal_the_whole_log() -> None:
    """Records that were added while the snapshot was written are read again."""
    known, pieces = large(), list[bytes | None]()
    more: list[Record] = [Keep("a", "t", 1, 2), Resume("y"), Delete(tuple(IDS[:9]), NOW_MS + 9)]
    writing = Writing(known, ANCHOR, NAME, 0)
    for position, record in enumerate(more, ANCHOR.position + 1):
        pieces.append(writing.next_piece())
        known.add(record, position)
    pieces += iter(writing.next_piece, None)
    restored = read([piece for piece in pieces if piece], writing.trailer())
    for position, record in enumerate(more, ANCHOR.position + 1):
        restored.add(record, position)
    assert everything(restored) == everything(known)


# Incomplete or damaged snapshots

Pieces = list[bytes]
SMALL = set_of(Delete(("a", Exact("b", "t", 9)), NOW_MS), Purge("x", 7), Pause("y"))


@cache  # not constants, because each xdist worker imports this file
def snapshot() -> tuple[Pieces, bytes]:
    return written(large())


@cache
def other_snapshot() -> tuple[Pieces, bytes]:
    return written(set_of(Delete(tuple(IDS[::-1]), NOW_MS + 1)), "ffeeddccbbaa9988")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damaged_byte_of_a_piece_is_detected(data: st.DataObject) -> None:
    pieces, trailer = written(SMALL)
    number = data.draw(st.integers(0, len(pieces) - 1))
    at = data.draw(st.integers(0, len(pieces[number]) - 1))
    damaged = bytearray(pieces[number])
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BrokenSnapshot):
        read([*pieces[:number], bytes(damaged), *pieces[number + 1 :]], trailer)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_damaged_byte_of_a_trailer_is_detected(data: st.DataObject) -> None:
    """Except a change without a meaning, such as another kind of space."""
    pieces, trailer = written(SMALL)
    damaged = bytearray(trailer)
    damaged[data.draw(st.integers(0, len(trailer) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        restored = read(pieces, bytes(damaged))
    except BrokenSnapshot:
        return
    assert everything(restored) == everything(SMALL)


@given(st.data())
def test_a_truncated_piece_or_trailer_is_detected(data: st.DataObject) -> None:
    pieces, trailer = written(SMALL)
    with pytest.raises(BrokenSnapshot):
        read([pieces[0][: data.draw(st.integers(0, len(pieces[0]) - 1))]], trailer)
    with pytest.raises(BrokenSnapshot):
        read_trailer(trailer[: data.draw(st.integers(0, len(trailer) - 1))])


@pytest.mark.parametrize(
    "arranged",
    [
        lambda _p, _o: [],
        lambda p, _: p[:-1],
        lambda p, _: p[1:],
        lambda p, _: [p[0], *p[2:]],
        lambda p, _: [p[0], p[0], *p[1:]],
        lambda p, _: [*p, p[-1]],
        lambda p, _: [*p, p[0]],
        lambda p, _: p[::-1],
        lambda p, o: [p[0], o[1], *p[2:]],
        lambda _, o: o,
        lambda p, _: [snapshot()[1], *p],
        lambda p, _: [b"", *p],
        lambda p, _: [b"RDS1", *p],
    ],
    ids=[
        *("none", "no last", "no first", "no second", "first twice", "last twice"),
        *("first again", "backwards", "foreign", "all foreign"),
        *("a trailer", "empty", "nothing but the beginning"),
    ],
)
def test_missing_or_reordered_pieces_are_detected(
    arranged: Callable[[Pieces, Pieces], Pieces],
) -> None:
    pieces, trailer = snapshot()
    with pytest.raises(BrokenSnapshot):
        read(arranged(pieces, other_snapshot()[0]), trailer)


def test_pieces_of_other_snapshots_are_ignored() -> None:
    (pieces, trailer), (others, _) = snapshot(), other_snapshot()
    mixed = [piece for pair in zip(others, pieces, strict=False) for piece in pair]
    mixed += [*pieces[len(others) :], *others[len(pieces) :]]
    assert everything(read(mixed, trailer)) == everything(large())


def test_pieces_of_another_snapshot_with_the_same_name_are_detected() -> None:
    """Names are random. If two were equal nevertheless, the digest would differ."""
    pieces, trailer = snapshot()
    others, _ = written(set_of(Delete(tuple(IDS[::-1]), NOW_MS + 1)))
    assert len(others) >= len(pieces)
    with pytest.raises(BrokenSnapshot):
        read(others[: len(pieces)], trailer)
    with pytest.raises(BrokenSnapshot):
        read(pieces, other_snapshot()[1])


def test_a_snapshot_is_complete_after_all_pieces() -> None:
    pieces, trailer = snapshot()
    reading = Reading(read_trailer(trailer))
    for piece in pieces:
        assert not reading.is_complete
        with pytest.raises(BrokenSnapshot):
            reading.result()
        reading.take(piece)
    assert reading.is_complete
    assert reading.result().count == len(IDS) + 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'"trailer"',
        b"{}",
        b'{"trailer": null}',
        b'{"trailer": []}',
        b'{"trailer": "version"}',
        b'{"trailer": {"version": 1}}',
        b'{"trailer": {"version": 1}, "checksum": "00"}',
        b"[" * 100_000,
        b"\xff\xfe",
        written(SMALL)[0][0],
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_an_invalid_trailer_is_refused(body: bytes) -> None:
    with pytest.raises(BrokenSnapshot):
        read_trailer(body)


@given(st.binary(max_size=99))
def test_arbitrary_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(BrokenSnapshot):
        read_trailer(body)
    with pytest.raises(BrokenSnapshot):
        Reading(read_trailer(snapshot()[1])).take(body)


@pytest.mark.parametrize("change", [{"version": 2}, {"more": 1}, {"pieces": None}])
def test_a_trailer_of_another_version_is_not_trusted(change: dict[str, object]) -> None:
    """Even if it is valid, because its fields may have another meaning."""
    pieces, trailer = snapshot()
    fields = json.loads(trailer)["trailer"] | change
    body = {"trailer": fields, "checksum": snapshots._checksum(fields)}
    with pytest.raises(BrokenSnapshot):
        read(pieces, json.dumps(body).encode())


# Joining


@settings(deadline=None)
@given(LOGS, LOGS)
def test_joining_a_piece_is_idempotent(log: list[Record], more: list[Record]) -> None:
    known, other = set_of(*log), set_of(*more)
    expected = set_of(*log).table
    expected.load(other.table.dump(range(len(other.table))))
    for _ in range(2):
        for piece in pieces_of(other):
            join_piece(known, piece)
        assert tombstones_in(known.table) == tombstones_in(expected)
        assert known.table.count == expected.count


def test_a_large_set_is_joined_with_an_empty_one() -> None:
    known = Tombstones()
    for piece in reversed(list(pieces_of(large()))):
        join_piece(known, piece)
    assert tombstones_in(known.table) == tombstones_in(large().table)


@given(st.data())
def test_a_damaged_piece_is_not_joined(data: st.DataObject) -> None:
    """Here neither the name nor the number matters."""
    [piece] = pieces_of(SMALL)
    known, damaged = Tombstones(), bytearray(piece)
    at = data.draw(st.integers(0, 3) | st.integers(16, len(piece) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BrokenSnapshot):
        join_piece(known, bytes(damaged))
    assert known.count == 0
