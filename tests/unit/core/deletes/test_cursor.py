"""Following the log: a current consumer has read all of it, whatever happened before."""

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rabbitdelay.core.deletes import snapshots
from rabbitdelay.core.deletes.cursor import FIRST, MESSAGE_COST, Following, Read
from rabbitdelay.core.deletes.records import (
    VERSION,
    Delete,
    Exact,
    Fence,
    Horizon,
    Keep,
    Pause,
    Purge,
    Record,
    RecordTooNew,
    Resume,
    SnapshotTaken,
    encode,
)
from rabbitdelay.core.deletes.snapshots import (
    Anchor,
    BrokenSnapshot,
    Reading,
    Writing,
    read_trailer,
)
from rabbitdelay.core.deletes.tombstones import Death, Tombstones

FENCE, OTHERS = Fence("mine"), Fence("another's")
TOO_NEW = json.dumps({"revive": ["a"], "version": VERSION + 1}).encode()


def follow(*log: Record | bytes, anchor: Anchor | None = None) -> Following:
    """Return a reader that has begun, awaits a fence, and has read these records."""
    following = Following(Tombstones(), anchor)
    following.begin()
    following.await_fence(FENCE.nonce)
    read_all(following, *log)
    return following


def read_all(following: Following, *log: Record | bytes, begin: int = 0) -> list[Read]:
    bodies = [record if isinstance(record, bytes) else encode(record) for record in log]
    return [following.read(position, body) for position, body in enumerate(bodies, begin)]


# State machine

SMALL_MS = st.integers(0, 4)
ID, TOPIC, TOKEN = st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("rst")
RECORDS = st.one_of(
    st.builds(Delete, st.tuples(ID), SMALL_MS),
    st.builds(Delete, st.tuples(st.builds(Exact, ID, TOKEN, SMALL_MS)), SMALL_MS),
    st.builds(Keep, ID, TOKEN, SMALL_MS, SMALL_MS),
    st.builds(Purge, TOPIC, SMALL_MS),
    st.builds(Pause, TOPIC),
    st.builds(Resume, TOPIC),
    st.builds(Horizon, st.just(1 << 40)),
    st.just(OTHERS),
    st.builds(SnapshotTaken, SMALL_MS),
)
COPIES = [(x, i, t, put) for x in "xy" for i in "ab" for t in "rst" for put in range(6)]


def killed(known: Tombstones) -> set[tuple[str, str, str, int]]:
    return {copy for copy in COPIES if known.kills(*copy) is not None}


class Log(RuleBasedStateMachine):
    """A log that is written, truncated, deleted and created anew, and a reader of it.

    The model is the log itself: whenever the reader is current, it knows what a new reader of the
    whole log would know; and it deletes nothing that no record ever named.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[bytes] = []
        self.first = 0
        self.ever = Tombstones()
        self.count = 0
        self.snapshot: tuple[list[bytes], bytes] | None = None
        self.following = Following(Tombstones())
        self.connect()

    def append(self, body: bytes) -> None:
        self.log.append(body)

    def write(self, record: Record) -> None:
        """Write records with unique marks, as real times and nonces are unique."""
        self.count += 1
        self.append(json.dumps(json.loads(encode(record)) | {"mark": self.count}).encode())
        self.ever.add(record, self.count)

    def connect(self) -> None:
        """Begin where the reader asks, or at the nearest existing position."""
        offset = self.following.begin()
        wanted = self.first if isinstance(offset, str) else offset
        self.at = min(max(wanted, self.first), len(self.log))
        self.fence_at: int | None = None

    def newcomer(self, end: int) -> Following:
        following = Following(Tombstones())
        following.begin()
        read_all(following, *self.log[self.first : end], begin=self.first)
        return following

    # Other programs

    @rule(record=RECORDS)
    def another_program_writes(self, record: Record) -> None:
        self.write(record)

    @rule(body=st.sampled_from([b"", b"garbage", b"{}", b"RDS1", b"RDS1" + bytes(66)]))
    def another_program_writes_garbage(self, body: bytes) -> None:
        self.append(body)

    @precondition(lambda self: len(self.log) > self.first)
    @rule(share=st.floats(0, 1))
    def old_segments_are_removed(self, share: float) -> None:
        """Remove segments that have been read and are older than any job that may be delivered."""
        self.first += int(max(0, self.at - self.first) * share)

    @rule()
    def the_log_is_deleted(self) -> None:
        self.log, self.first = [], 0
        self.connect()

    # The reader

    @rule(many=st.integers(1, 9))
    def records_come(self, many: int) -> None:
        for _ in range(min(many, len(self.log) - self.at)):
            position, self.at = self.at, self.at + 1
            if self.following.read(position, self.log[position]) is Read.OTHER_LOG:
                self.start_over()
                return

    @rule()
    def all_records_come(self) -> None:
        self.records_come(len(self.log))

    @rule()
    def write_a_fence(self) -> None:
        self.count += 1
        self.fence_at = len(self.log) if self.fence_at is None else self.fence_at
        self.append(encode(Fence(f"nonce-{self.count}")))
        self.following.await_fence(f"nonce-{self.count}")

    @rule()
    def the_connection_is_lost(self) -> None:
        self.connect()
        assert not self.following.is_current

    def start_over(self) -> None:
        before = killed(self.following.tombstones)
        self.following.start_over()
        assert killed(self.following.tombstones) == before
        self.connect()
        assert self.at == self.first
        for record in self.following.tombstones.records(for_another_log=True):
            self.write(record)
        for piece in snapshots.pieces_of(self.following.tombstones):
            self.append(piece)

    @rule()
    def restart_with_nothing(self) -> None:
        self.following = Following(Tombstones())
        self.connect()

    @precondition(lambda self: self.following.is_current)
    @rule()
    def take_a_snapshot(self) -> None:
        assert self.following.anchor is not None
        writing = Writing(self.following.tombstones, self.following.anchor, "0" * 16, 0)
        pieces = [piece for piece in iter(writing.next_piece, None) if piece is not None]
        self.snapshot = pieces, writing.trailer()

    @precondition(lambda self: self.snapshot)
    @rule()
    def restart_from_the_snapshot(self) -> None:
        assert self.snapshot is not None
        pieces, trailer = self.snapshot
        reading = Reading(read_trailer(trailer))
        for piece in pieces:
            reading.take(piece)
        self.following = Following(reading.result(), reading.trailer.anchor)
        self.connect()

    # Invariants

    @invariant()
    def a_current_reader_knows_the_log(self) -> None:
        if self.following.is_current:
            assert self.fence_at is not None
            assert self.at > self.fence_at
            expected = self.newcomer(self.at).tombstones
            known = self.following.tombstones
            assert killed(known) >= killed(expected)
            for topic in expected.switches:
                assert known.is_paused(topic) == expected.is_paused(topic)

    @invariant()
    def no_job_is_killed_without_a_record(self) -> None:
        assert killed(self.following.tombstones) <= killed(self.ever)


TestLog = Log.TestCase
TestLog.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


# Fences


def test_a_reader_is_current_after_reading_its_fence() -> None:
    following = follow()
    reads = read_all(following, Delete(("a",), 5), Fence("another's"), FENCE)
    assert reads == [Read.NOTHING, Read.NOTHING, Read.CAUGHT_UP]
    assert following.is_current
    assert following.tombstones.kills("x", "a", "t", 5) is Death.DELETED


def test_the_fence_of_another_consumer_is_ignored() -> None:
    assert not follow(Fence("another's"), Fence("")).is_current


def test_a_fence_that_is_not_awaited_is_ignored() -> None:
    following = Following(Tombstones())
    following.begin()
    assert read_all(following, FENCE) == [Read.NOTHING]
    assert not following.is_current


def test_a_fence_counts_once() -> None:
    following = follow(FENCE)
    following.cut_off()
    assert read_all(following, FENCE) == [Read.NOTHING]
    assert not following.is_current


def test_the_first_of_several_fences_makes_it_current() -> None:
    """On a slow connection a second fence is written before the first one is read."""
    following = follow()
    following.await_fence("second")
    assert read_all(following, FENCE) == [Read.CAUGHT_UP]
    assert read_all(following, Fence("second"), begin=1) == [Read.CAUGHT_UP]
    assert read_all(following, FENCE, Fence("second"), begin=2) == [Read.NOTHING] * 2


def test_another_fence_while_it_is_current_leaves_it_current() -> None:
    following = follow(FENCE)
    following.await_fence("second")
    assert following.is_current


def test_an_interruption_makes_it_not_current_at_once() -> None:
    following = follow(FENCE)
    following.cut_off()
    assert not following.is_current
    following = follow(FENCE)
    following.begin()
    assert not following.is_current
    following = follow(FENCE)
    following.start_over()
    assert not following.is_current


def test_a_fence_from_before_an_interruption_is_ignored() -> None:
    following = follow()
    following.cut_off()
    assert read_all(following, FENCE) == [Read.NOTHING]
    assert not following.is_current


# Anchors


def test_reading_starts_at_the_beginning_and_continues_from_the_last_fence() -> None:
    following = Following(Tombstones())
    assert following.begin() == FIRST
    read_all(following, Pause("x"), OTHERS, Resume("x"), b"garbage", begin=7)
    assert following.anchor == Anchor.of(8, encode(OTHERS))
    assert following.begin() == 8
    assert following.is_matching


def test_the_anchor_is_matched_and_not_read_again() -> None:
    following = follow(Delete(("a",), 1), FENCE)
    following.begin()
    following.await_fence(FENCE.nonce)
    before = following.read_count, following.since_snapshot
    assert read_all(following, FENCE, begin=1) == [Read.NOTHING]
    assert (following.read_count, following.since_snapshot) == before
    assert not following.is_matching
    assert not following.is_current
    assert read_all(following, FENCE, begin=2) == [Read.CAUGHT_UP]


def test_records_after_the_anchor_are_read_again_without_effect() -> None:
    keep = Keep("b", "t", 2, 3)
    log: list[Record] = [OTHERS, Delete(("a",), 1), Pause("x"), Resume("x"), keep]
    following = follow(*log)
    known, count = killed(following.tombstones), following.tombstones.count
    assert following.begin() == 0
    read_all(following, *log[:3])
    assert not following.tombstones.is_paused("x")
    assert (killed(following.tombstones), following.tombstones.count) == (known, count)


@pytest.mark.parametrize(
    ("position", "record"),
    [(1, Fence("a third's")), (2, OTHERS), (0, OTHERS), (1, FENCE), (1, Delete(("a",), 1))],
)
def test_a_different_record_or_position_means_another_log(position: int, record: Record) -> None:
    following = follow(Delete(("a",), 1), OTHERS)
    following.begin()
    following.await_fence(FENCE.nonce)
    assert read_all(following, record, begin=position) == [Read.OTHER_LOG]
    assert not following.is_current


def test_the_anchor_of_a_snapshot_is_matched_first() -> None:
    anchor = Anchor.of(5, encode(OTHERS))
    following = Following(Tombstones(), anchor)
    assert following.anchor == anchor
    assert following.begin() == 5
    assert following.read(5, encode(OTHERS)) is Read.NOTHING
    assert following.read(6, encode(Pause("x"))) is Read.SWITCHED
    assert following.begin() == 5


def test_an_interruption_before_any_record_keeps_the_anchor() -> None:
    following = Following(Tombstones(), Anchor.of(5, b"a"))
    assert [following.begin(), following.begin()] == [5, 5]


def test_tombstones_are_kept_when_another_log_begins() -> None:
    following = follow(Delete(("a",), 5), Purge("x", 3), Pause("y"), FENCE)
    following.start_over()
    assert following.anchor is None
    assert following.begin() == FIRST
    known = following.tombstones
    assert known.kills("z", "a", "t", 5) is Death.DELETED
    assert known.kills("x", "b", "t", 3) is Death.PURGED
    assert known.is_paused("y")


def test_records_of_another_log_count_as_later() -> None:
    following = follow(*[FENCE] * 50, Pause("x"))
    following.start_over()
    following.begin()
    assert read_all(following, Resume("x")) == [Read.SWITCHED]
    assert not following.tombstones.is_paused("x")


def test_a_record_without_a_unique_mark_is_not_an_anchor() -> None:
    """A pause contains neither a time nor a nonce."""
    following = follow(Delete(("a",), 1), Pause("x"))
    assert following.anchor is None
    assert following.begin() == FIRST


def test_reading_from_the_beginning_discards_old_positions() -> None:
    """Without a fence, the reader cannot tell whether this is the same log."""
    following = follow(Delete(("a",), 1), Pause("x"))
    assert following.begin() == FIRST
    read_all(following, Resume("x"))
    assert not following.tombstones.is_paused("x")


# Records


def test_a_pause_and_a_resume_are_reported() -> None:
    following = follow()
    assert read_all(following, Pause("x")) == [Read.SWITCHED]
    assert following.tombstones.is_paused("x")
    assert read_all(following, Resume("x"), begin=1) == [Read.SWITCHED]
    assert not following.tombstones.is_paused("x")


@pytest.mark.parametrize("garbage", [b"", b"{}", b"\xff", b"[" * 100_000, b"RDS1", b"RDS1" * 99])
def test_garbage_is_skipped(garbage: bytes) -> None:
    following = follow()
    reads = read_all(following, garbage, Delete(("a",), 5), FENCE)
    assert reads == [Read.SKIPPED, Read.NOTHING, Read.CAUGHT_UP]
    assert following.tombstones.count == 1


def test_pieces_in_the_log_are_joined() -> None:
    known = Tombstones()
    known.add(Delete(("a", Exact("b", "t", 9)), 5))
    [piece] = snapshots.pieces_of(known)
    following = follow(Delete(("a",), 7), piece, piece)
    assert following.tombstones.count == 2
    assert following.tombstones.kills("x", "a", "t", 7) is Death.DELETED
    assert following.tombstones.kills("x", "b", "t", 99) is Death.DELETED


def test_a_damaged_piece_in_the_log_is_skipped() -> None:
    known = Tombstones()
    known.add(Delete(("a",), 5))
    [piece] = snapshots.pieces_of(known)
    with pytest.raises(BrokenSnapshot):
        snapshots.join_piece(Tombstones(), piece[:-1] + b"?")
    following = follow()
    assert read_all(following, piece[:-1] + b"?") == [Read.SKIPPED]
    assert following.tombstones.count == 0


def test_a_record_that_is_too_new_is_raised() -> None:
    following = follow()
    with pytest.raises(RecordTooNew):
        following.read(0, TOO_NEW)


def test_a_record_that_is_too_new_makes_it_not_current() -> None:
    following = follow(FENCE)
    with pytest.raises(RecordTooNew):
        following.read(1, TOO_NEW)
    assert not following.is_current


def test_a_record_that_is_too_new_is_raised_again_after_a_restart() -> None:
    following = follow(Delete(("a",), 5), FENCE)
    with pytest.raises(RecordTooNew):
        following.read(2, TOO_NEW)
    assert following.begin() == 1
    read_all(following, FENCE, begin=1)
    with pytest.raises(RecordTooNew):
        following.read(2, TOO_NEW)


def test_a_fence_in_another_log_is_ignored() -> None:
    """The record was sent before the reader could begin anew."""
    following = follow(Delete(("a",), 1), OTHERS)
    following.begin()
    following.await_fence(FENCE.nonce)
    reads = read_all(following, Purge("x", 1), FENCE, begin=1)
    assert reads == [Read.OTHER_LOG, Read.NOTHING]
    assert not following.is_current


# Counting


def test_the_cost_since_the_last_snapshot_is_counted() -> None:
    following = follow(Delete(("a", "b", "c"), 1), Keep("a", "t", 2, 3), Purge("x", 1), FENCE)
    assert following.since_snapshot == 6 + 4 * MESSAGE_COST
    assert following.read_count == 4
    read_all(following, SnapshotTaken(77), begin=4)
    assert following.since_snapshot == 0
    assert following.snapshot_ms == 77
    read_all(following, Delete(("d",), 1), begin=5)
    assert following.since_snapshot == 1 + MESSAGE_COST
    assert following.read_count == 6


def test_fences_count_towards_a_snapshot() -> None:
    """Many consumers write many fences, which a new consumer would have to read."""
    following = follow(b"garbage", FENCE, Fence("another's"))
    assert (following.read_count, following.since_snapshot) == (3, 2 + 2 * MESSAGE_COST)
