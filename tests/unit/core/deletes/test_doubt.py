"""Records that cannot be right delete nothing, except for their certain part."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.deletes import doubt, snapshots
from rabbitdelay.core.deletes.cursor import Following, Read
from rabbitdelay.core.deletes.doubt import AHEAD_MS, BEHIND_MS, Doubted
from rabbitdelay.core.deletes.records import (
    MAX_MS,
    Delete,
    Exact,
    Fence,
    Horizon,
    Keep,
    Pause,
    Purge,
    Record,
    Resume,
    SnapshotTaken,
    encode,
)
from rabbitdelay.core.deletes.snapshots import Anchor, Reading, Writing
from rabbitdelay.core.deletes.tombstone_table import split_by_time
from rabbitdelay.core.deletes.tombstones import Death, Tombstones

NOW_MS = 1_794_845_600_000
LATEST_MS = doubt.latest_ms(NOW_MS)
TOO_LATE_MS = LATEST_MS + 1
DAY_MS = 86_400_000
MOMENTS = st.integers(0, MAX_MS - 1)
IDS = st.sampled_from(["a", "b"])
TOKENS = st.sampled_from(["t1", "t2"])
TARGETS = IDS | st.builds(Exact, IDS, TOKENS, MOMENTS)
Dated = Delete | Keep | Purge


def dated(moments: st.SearchStrategy[int]) -> st.SearchStrategy[Dated]:
    return st.one_of(
        st.builds(Delete, st.lists(TARGETS, max_size=4).map(tuple), moments, st.none() | MOMENTS),
        st.builds(Keep, IDS, TOKENS, moments, MOMENTS, st.lists(TOKENS, max_size=2).map(tuple)),
        st.builds(Purge, st.just("t"), moments),
    )


RECORDS = dated(MOMENTS)
LATE = dated(st.integers(TOO_LATE_MS, MAX_MS - 1))


def set_of(*records: Record | None) -> Tombstones:
    known = Tombstones()
    for record in records:
        if record is not None:
            known.add(record)
    return known


def read_all(*records: Record, latest_ms: int = LATEST_MS) -> tuple[Following, list[Read]]:
    following = Following(Tombstones())
    following.begin()
    bodies = map(encode, records)
    return following, [
        following.read(position, body, latest_ms=latest_ms)
        for position, body in enumerate(bodies, 10)
    ]


@given(RECORDS)
def test_a_record_dated_in_range_is_not_split(record: Dated) -> None:
    assert doubt.split(record, record.time_ms) == (record, None)


@given(RECORDS, IDS, TOKENS, MOMENTS)
def test_nothing_is_lost_by_splitting(record: Dated, id: str, token: str, put_ms: int) -> None:
    """Both parts together delete what the record deletes."""
    whole, parts = set_of(record), set_of(*doubt.split(record, LATEST_MS))
    asked = ("t", id, token, put_ms)
    assert (parts.kills(*asked) is None) == (whole.kills(*asked) is None)


@given(LATE, IDS, MOMENTS)
def test_the_certain_part_of_a_late_record_only_kills_tokens(
    record: Dated, id: str, put_ms: int
) -> None:
    believed, _ = doubt.split(record, LATEST_MS)
    assert set_of(believed).kills("t", id, "another token", put_ms) is None


@pytest.mark.parametrize(
    "record",
    [Fence("n"), Horizon(MAX_MS - 1), SnapshotTaken(MAX_MS - 1), Pause("t", 3), Resume("t")],
    ids=lambda record: type(record).__name__,
)
def test_records_that_delete_nothing_are_never_doubted(record: Record) -> None:
    assert doubt.split(record, 0) == (record, None)


@pytest.mark.parametrize(
    "record",
    [
        Delete(("a",), TOO_LATE_MS),
        Keep("a", "other", TOO_LATE_MS, TOO_LATE_MS),
        Purge("t", TOO_LATE_MS),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_late_record_is_reported_and_kills_nothing(record: Record) -> None:
    following, reads = read_all(record)
    assert reads == [Read.DOUBTED]
    assert following.tombstones.kills("t", "a", "token", NOW_MS) is None
    following, reads = read_all(record, latest_ms=TOO_LATE_MS)
    assert reads == [Read.NOTHING]
    assert following.tombstones.kills("t", "a", "token", NOW_MS) is not None


def test_a_late_record_does_not_replace_an_earlier_one() -> None:
    following, _ = read_all(Purge("t", NOW_MS), Purge("t", TOO_LATE_MS))
    assert following.tombstones.kills("t", "a", "token", NOW_MS) is Death.PURGED
    assert following.tombstones.kills("t", "a", "token", NOW_MS + 1) is None


def test_a_delete_of_one_token_holds_whatever_its_date() -> None:
    following, _ = read_all(Delete((Exact("a", "dead", NOW_MS), "b"), TOO_LATE_MS))
    assert following.tombstones.kills("t", "a", "dead", NOW_MS) is Death.DELETED
    assert following.tombstones.kills("t", "b", "lives", NOW_MS) is None


@given(st.integers(-2 * BEHIND_MS, 800 * DAY_MS))
def test_doubted_records_kill_a_job_that_shows_a_slow_clock(
    ahead_ms: int,
) -> None:
    doubted = Doubted()
    doubted.add(Purge("t", TOO_LATE_MS + 900 * DAY_MS))
    due_ms = NOW_MS + ahead_ms
    dead = doubted.kills("t", "a", "token", due_ms, due_ms=due_ms, now_ms=NOW_MS) is not None
    assert dead == (ahead_ms > BEHIND_MS)


def test_every_delete_of_its_id_kills_a_message_without_a_put_time() -> None:
    doubted = Doubted()
    doubted.add(Purge("t", TOO_LATE_MS))
    assert doubted.kills("t", "a", "", None, due_ms=NOW_MS, now_ms=NOW_MS) is None
    doubted.add(Delete(("a",), TOO_LATE_MS))
    assert doubted.kills("t", "a", "", None, due_ms=NOW_MS, now_ms=NOW_MS) is Death.DELETED
    assert doubted.kills("t", "a", "", NOW_MS, due_ms=NOW_MS, now_ms=NOW_MS) is None


# Pauses


@given(st.integers(-(1 << 70), 1 << 70), st.integers(0, 1 << 40))
def test_a_pause_can_always_be_resumed(since: int, position: int) -> None:
    following = Following(Tombstones())
    following.begin()
    read = following.read(position, encode(Pause("t", since)))
    assert read is (Read.SWITCHED if -1 <= since < position else Read.SKIPPED)
    following.read(position + 1, encode(Resume("t")))
    assert not following.tombstones.is_paused("t")


# Pieces and snapshots


def forged() -> Tombstones:
    return set_of(
        Delete(("dead",), NOW_MS),
        Delete(("forged",), TOO_LATE_MS),
        Purge("t", TOO_LATE_MS),
        Purge("u", NOW_MS),
    )


def assert_forged_is_doubted(known: Tombstones, doubted: Doubted) -> None:
    assert known.kills("v", "dead", "token", NOW_MS) is Death.DELETED
    assert known.kills("u", "x", "token", NOW_MS) is Death.PURGED
    assert known.kills("t", "forged", "token", NOW_MS) is None
    assert doubted.tombstones.kills("v", "forged", "token", NOW_MS) is Death.DELETED


def test_a_snapshot_with_late_times_is_believed_in_part() -> None:
    writing = Writing(forged(), Anchor(0, "00" * 8), "0123456789abcdef", NOW_MS)
    pieces = [piece for piece in iter(writing.next_piece, None) if piece is not None]
    trailer = snapshots.read_trailer(writing.trailer())
    reading = Reading(trailer, latest_ms=LATEST_MS)
    for piece in pieces:
        reading.take(piece)
    assert_forged_is_doubted(reading.result(), reading.doubted)
    assert json.loads(writing.trailer())["trailer"]["purges"]["t"] == TOO_LATE_MS


def test_doubted_records_are_written_again() -> None:
    following = Following(Tombstones())
    following.begin()
    known = forged()
    bodies = [encode(record) for record in known.records(for_another_log=True)]
    for position, body in enumerate([*bodies, *snapshots.pieces_of(known)]):
        following.read(position, body, latest_ms=LATEST_MS)
    assert_forged_is_doubted(following.tombstones, following.doubted)
    other = Following(Tombstones())
    other.begin()
    for position, body in enumerate(snapshots.doubted_again(following.doubted)):
        other.read(position, body, latest_ms=TOO_LATE_MS)
    assert other.tombstones.kills("v", "forged", "token", NOW_MS) is Death.DELETED
    assert other.tombstones.kills("t", "x", "token", NOW_MS) is Death.PURGED
    assert snapshots.doubted_again(Doubted()) == []


def test_tombstones_are_split_by_their_time() -> None:
    dumped = forged().table.dump(range(len(forged().table)))
    assert split_by_time(dumped, MAX_MS) == (dumped, b"")
    sure, late = split_by_time(dumped, LATEST_MS)
    assert (len(sure), len(late)) == (len(dumped) // 2, len(dumped) // 2)
    assert AHEAD_MS == LATEST_MS - NOW_MS
