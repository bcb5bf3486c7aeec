"""The table of tombstones: adding is a join, growth loses nothing, and a million are small."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbitdelay.core.deletes import tombstone_table
from rabbitdelay.core.deletes.tombstone_table import (
    FEWEST_BUCKETS,
    ID_BYTES,
    TOMBSTONES_PER_BUCKET,
    WIDTH,
    Kill,
    TombstoneTable,
)

TIME_MS = st.integers(0, tombstone_table.MAX_MS)
IDS = st.sampled_from(["a", "b", "order-17", "ü", "x" * 200, ""])
TOKENS = st.sampled_from(["", "s", "t", "4f5c000000000000"])
STONES = st.one_of(
    st.builds(tombstone_table.before, IDS, TIME_MS, TIME_MS),
    st.builds(tombstone_table.all_but, IDS, TOKENS, TIME_MS, TIME_MS),
    st.builds(tombstone_table.exact, IDS, TOKENS, TIME_MS),
)
MANY = 3 * TOMBSTONES_PER_BUCKET * FEWEST_BUCKETS + 100
"""Enough to double the buckets, and to be half way to double them again."""


def table_of(*some: bytes) -> TombstoneTable:
    table = TombstoneTable()
    for tombstone in some:
        table.add(tombstone)
    return table


def numbered(begin: int, end: int) -> list[bytes]:
    return [
        tombstone_table.before(f"order-{number}", number, number) for number in range(begin, end)
    ]


def content(table: TombstoneTable) -> set[bytes]:
    """Return the tombstones of a table; check that each is found."""
    found: list[bytes] = []
    for index, bucket in enumerate(table._buckets):
        if bucket:
            there = [bucket[at : at + WIDTH] for at in range(0, len(bucket), WIDTH)]
            assert all(table._index(tombstone) == index for tombstone in there)
            found += there
    assert len(found) == len(set(found)) == table.count
    return set(found)


def killed(table: TombstoneTable, id: str, put_ms: int, token: str) -> bool:
    return table.kill(id, put_ms, token) is not None


# Killing


def test_a_tombstone_by_time_kills_copies_put_at_or_before_it() -> None:
    table = table_of(tombstone_table.before("a", 100, 200))
    assert [killed(table, "a", put_ms, "t") for put_ms in (0, 99, 100, 101)] == [True] * 3 + [False]
    assert not killed(table, "b", 50, "t")


def test_an_exact_tombstone_kills_one_token_whenever_it_was_put() -> None:
    table = table_of(tombstone_table.exact("a", "t", 200))
    assert [killed(table, "a", put_ms, "t") for put_ms in (0, tombstone_table.MAX_MS)] == [
        True,
        True,
    ]
    assert not killed(table, "a", 0, "s")
    assert not killed(table, "b", 0, "t")


def test_all_but_kills_earlier_copies_and_spares_its_token() -> None:
    table = table_of(tombstone_table.all_but("a", "t", 100, 200))
    assert killed(table, "a", 99, "t")
    assert killed(table, "a", 99, "s")
    assert not killed(table, "a", 100, "t")
    assert not killed(table, "a", 101, "s")


@given(st.sets(st.text(max_size=16), min_size=2, max_size=8))
def test_one_of_several_replaces_in_one_millisecond_is_left(tokens: set[str]) -> None:
    table = table_of(*(tombstone_table.all_but("a", token, 100, 200) for token in tokens))
    assert [killed(table, "a", 100, token) for token in tokens].count(False) == 1


@pytest.mark.parametrize(("ms", "shown"), [(-5, 0), (1 << 60, tombstone_table.MAX_MS)])
def test_times_out_of_range_are_clamped(ms: int, shown: int) -> None:
    table = table_of(tombstone_table.before("a", ms, ms))
    assert [*map(tombstone_table.last_ms, table.of("a"))] == [shown]
    assert killed(table, "a", shown, "")


# Joining


@settings(deadline=None)
@given(st.lists(STONES, max_size=8), st.data())
def test_order_and_repetition_do_not_matter(some: list[bytes], data: st.DataObject) -> None:
    order = data.draw(st.permutations(2 * some))
    assert content(table_of(*order)) == content(table_of(*some))


@settings(deadline=None)
@given(st.lists(STONES, max_size=8), IDS, TIME_MS, TOKENS)
def test_a_join_kills_what_any_of_its_tombstones_kills(
    some: list[bytes], id: str, put_ms: int, token: str
) -> None:
    alone = any(killed(table_of(tombstone), id, put_ms, token) for tombstone in some)
    assert killed(table_of(*some), id, put_ms, token) == alone


def test_a_join_takes_the_higher_order_and_the_later_last_moment() -> None:
    table = table_of(
        tombstone_table.before("a", 100, 900), tombstone_table.all_but("a", "t", 300, 400)
    )
    assert [*map(tombstone_table.last_ms, table.of("a"))] == [900]
    assert (table.kill("a", 299, ""), table.count) == (Kill.BY_ANOTHER, 1)
    table.add(tombstone_table.before("a", 300, 0))
    assert [*map(tombstone_table.last_ms, table.of("a"))] == [900]
    assert (table.kill("a", 299, ""), table.count) == (Kill.BY_TIME, 1)


def test_each_token_of_an_id_has_its_own_tombstone() -> None:
    table = table_of(
        *(tombstone_table.exact("a", token, 7) for token in "sts"),
        tombstone_table.before("a", 1, 2),
    )
    assert (table.count, len(table.of("a"))) == (3, 3)
    table.add(tombstone_table.exact("a", "t", 9))
    assert sorted(map(tombstone_table.last_ms, table.of("a"))) == [2, 7, 9]
    assert (table.kill("a", 1, "t"), table.kill("a", 2, "t")) == (Kill.BY_TIME, Kill.BY_TOKEN)


# Growing


def test_growth_loses_nothing() -> None:
    table, some = TombstoneTable(), numbered(0, MANY)
    for number, tombstone in enumerate(some):
        table.add(tombstone)
        assert table.count == number + 1
        assert table.count <= TOMBSTONES_PER_BUCKET * len(table)
    assert 2 * FEWEST_BUCKETS < len(table) < 4 * FEWEST_BUCKETS
    assert content(table) == set(some)
    assert all(len(table.of(f"order-{number}")) == 1 for number in range(MANY))
    assert not table.of("order-x")


def test_a_tombstone_is_joined_with_itself_after_growth() -> None:
    table = table_of(*numbered(0, MANY))
    for tombstone in numbered(0, MANY):
        table.add(tombstone)
    assert table.count == MANY


# False matches


def test_a_key_across_two_tombstones_does_not_match() -> None:
    """A bucket is searched as text, so a match need not begin where a tombstone does."""
    key = bytes(ID_BYTES) + b"B"
    one = bytes(4) + b"\x01" * 12 + b"B" + b"\x02" * 15 + bytes(6)
    next_one = bytes(10) + b"B" + b"\x03" * 5 + b"T" + b"\x04" * 21
    assert len(one) == len(next_one) == WIDTH
    assert key in one + next_one
    tombstone = key + b"\x05" * 21
    table = table_of(one, next_one, tombstone)
    assert content(table) == {one, next_one, tombstone}


@given(st.lists(st.binary(min_size=WIDTH, max_size=WIDTH), max_size=6), st.data())
def test_only_the_beginning_of_a_tombstone_matches(some: list[bytes], data: st.DataObject) -> None:
    bucket = b"".join(some)
    begin = data.draw(st.integers(0, max(0, len(bucket) - 1)))
    key = bucket[begin : begin + data.draw(st.integers(1, 20))] or b"\x00"
    expected = [at for at in range(0, len(bucket), WIDTH) if bucket.startswith(key, at)]
    assert tombstone_table._find(bucket, key) == (expected[0] if expected else -1)


def test_ids_with_the_same_quick_hash_are_distinguished() -> None:
    """These two ids have the same CRC-32."""
    one, other = "plumless", "buckeroo"
    assert tombstone_table.id_key(one)[:4] == tombstone_table.id_key(other)[:4]
    table = table_of(tombstone_table.before(one, 1, 2))
    assert not table.of(other)
    table.add(tombstone_table.before(other, 3, 4))
    assert [*map(tombstone_table.last_ms, table.of(one) + table.of(other))] == [2, 4]


# Dumping and loading


@pytest.mark.parametrize("room", [None, 0, 1, 1023, 1024, 1025, 2048, 3000, 5000])
def test_a_dump_loads_into_any_number_of_buckets(room: int | None) -> None:
    table, loaded = table_of(*numbered(0, MANY)), TombstoneTable()
    if room is not None:
        loaded.make_room(room)
        assert len(loaded) == max(room, FEWEST_BUCKETS)
    loaded.load(table.dump(range(len(table))))
    assert content(loaded) == content(table)
    assert loaded.count <= TOMBSTONES_PER_BUCKET * len(loaded)
    loaded.add(tombstone_table.before("one more", 1, 2))
    assert loaded.count == MANY + 1


def test_room_is_made_only_in_an_empty_table() -> None:
    table = table_of(*numbered(0, 10))
    table.make_room(5_000)
    assert (len(table), content(table)) == (FEWEST_BUCKETS, set(numbered(0, 10)))


@pytest.mark.parametrize(("begin", "end"), [(0, 50), (MANY // 2, 2 * MANY), (0, MANY)])
def test_loading_joins_with_existing_tombstones(begin: int, end: int) -> None:
    table, some = table_of(*numbered(begin, end)), table_of(*numbered(0, MANY))
    later = [tombstone_table.before(f"order-{number}", 0, 1 << 40) for number in range(0, MANY, 7)]
    for tombstone in later:
        some.add(tombstone)
    table.load(some.dump(range(len(some))))
    assert content(table) == content(table_of(*numbered(min(begin, 0), max(end, MANY)), *later))


@settings(deadline=None)
@given(st.lists(STONES, max_size=12), st.lists(STONES, max_size=12))
def test_loading_equals_adding(there: list[bytes], loaded: list[bytes]) -> None:
    table, other = table_of(*there), table_of(*loaded)
    for _ in range(2):
        table.load(other.dump(range(len(other))))
        assert content(table) == content(table_of(*there, *loaded))


@settings(max_examples=12, deadline=None)
@given(growth=st.lists(st.integers(0, 3_000), min_size=1, max_size=6), step=st.integers(100, 1_500))
def test_a_dump_in_pieces_contains_everything_from_its_start(growth: list[int], step: int) -> None:
    """Between two pieces, buckets are split on both sides of the dumped range."""
    table, pieces = table_of(*numbered(0, 3_000)), []
    begin, known = 0, 3_000
    while begin < len(table):
        end = min(begin + step, len(table))
        pieces.append(table.dump(range(begin, end)))
        begin = end
        more = growth[len(pieces) % len(growth)] if len(pieces) <= 10 else 0
        for tombstone in numbered(known, known + more):
            table.add(tombstone)
        known += more
    for room in (0, len(table)):
        loaded = TombstoneTable()
        loaded.make_room(room)
        for piece in pieces:
            loaded.load(piece)
        assert set(numbered(0, 3_000)) <= content(loaded) <= content(table)


# Expiring


def test_expiry_removes_tombstones_no_longer_needed() -> None:
    table = table_of(*numbered(0, MANY))
    table.expire(1_000)
    assert content(table) == set(numbered(1_000, MANY))
    table.expire(1_000)
    assert table.count == MANY - 1_000
    assert not table.of("order-999")
    assert table.of("order-1000")


def test_expiry_in_parts_equals_expiry_of_the_whole() -> None:
    table, whole = table_of(*numbered(0, MANY)), table_of(*numbered(0, MANY))
    whole.expire(MANY // 2)
    for begin in range(0, len(table), 100):
        table.expire(MANY // 2, range(begin, min(begin + 100, len(table))))
    assert content(table) == content(whole)


def test_expiry_of_no_bucket_removes_nothing() -> None:
    table = table_of(*numbered(0, 50))
    table.expire(tombstone_table.MAX_MS, range(7, 7))
    assert table.count == 50
    table.expire(tombstone_table.MAX_MS)
    assert table.count == 0


def test_tombstones_can_be_added_after_all_expired() -> None:
    table = table_of(*numbered(0, MANY))
    table.expire(tombstone_table.MAX_MS)
    for tombstone in numbered(0, MANY):
        table.add(tombstone)
    assert content(table) == set(numbered(0, MANY))


# Memory

BYTES_PER_TOMBSTONE = 120
MEASURE = """
import gc, sys
from pathlib import Path
from rabbitdelay.core.jobs.ids import generate
from rabbitdelay.core.deletes.records import Delete
from rabbitdelay.core.deletes.tombstones import Tombstones

def resident_bytes():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

count, known = int(sys.argv[1]), Tombstones()
before = resident_bytes()
for number in range(count):
    known.add(Delete((generate(1_731_500_000_000 + number, f"{number:016x}"),), 1_731_500_000_000))
assert known.count == count
print(resident_bytes() - before, known.memory_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_tombstones_use_the_estimated_memory(count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(count)], capture_output=True, check=True
    )
    resident_bytes, said_bytes = map(int, done.stdout.split())
    assert resident_bytes <= BYTES_PER_TOMBSTONE * count
    assert said_bytes == pytest.approx(resident_bytes, rel=0.35)
