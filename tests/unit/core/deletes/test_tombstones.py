"""The set of tombstones: deleted jobs never run, and no other job is deleted."""

from dataclasses import dataclass
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rabbitdelay.core.deletes.records import (
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
    known_until,
)
from rabbitdelay.core.deletes.tombstone_table import token_key
from rabbitdelay.core.deletes.tombstones import GRACE_MS, HORIZON_MS, Death, Tombstones
from rabbitdelay.core.jobs import ids
from rabbitdelay.core.topology.ladder import DAY_MS, HOUR_MS

NOW_MS = 1_731_500_000_000
IDS = ("order-17", "order-18")
TOPICS = ("order.close", "mail")
SKEW_MS = st.sampled_from([0, 0, -2_000, 2_000, 1])
DELAY_MS = st.sampled_from([0, 1, HOUR_MS, GRACE_MS, GRACE_MS + 1, 10 * DAY_MS, HORIZON_MS])
NUMBERS = st.integers(0, 59)


@dataclass(frozen=True, slots=True)
class Copy:
    """The arguments of a query, and when the copy may be delivered."""

    topic: str
    id: str
    token: str
    put_ms: int
    due_ms: int = 0


def covers(record: Record, copy: Copy) -> bool:
    """Return whether a record deletes a job: the reference model."""
    match record:
        case Delete(jobs, time_ms):
            exact = {(one.id, one.token) for one in jobs if isinstance(one, Exact)}
            by_id = copy.id in jobs and copy.put_ms <= time_ms
            return by_id or (copy.id, copy.token) in exact
        case Keep(id, token, time_ms, _, instead_of):
            kept = (time_ms, token_key(token))
            is_before = (copy.put_ms, token_key(copy.token)) < kept
            return copy.id == id and (is_before or copy.token in instead_of)
        case Purge(topic, time_ms):
            return copy.topic == topic and copy.put_ms <= time_ms
    return False


def set_of(*log: Record, floor_ms: int = 0) -> Tombstones:
    known = Tombstones(floor_ms=floor_ms)
    for position, record in enumerate(log):
        known.add(record, position)
    return known


def death(known: Tombstones, copy: Copy) -> Death | None:
    return known.kills(copy.topic, copy.id, copy.token, copy.put_ms)


# Comparison with the reference model

SMALL_MS = st.integers(0, 4)
SOME_ID, SOME_TOPIC = st.sampled_from(IDS), st.sampled_from(TOPICS)
SOME_TOKEN = st.sampled_from("rst")
TARGETS = st.lists(SOME_ID | st.builds(Exact, SOME_ID, SOME_TOKEN, SMALL_MS), max_size=3)
RECORDS = st.one_of(
    st.builds(Delete, TARGETS.map(tuple), SMALL_MS, st.none() | SMALL_MS),
    st.builds(
        Keep, SOME_ID, SOME_TOKEN, SMALL_MS, SMALL_MS, st.lists(SOME_TOKEN, max_size=2).map(tuple)
    ),
    st.builds(Purge, SOME_TOPIC, SMALL_MS),
    st.builds(Pause, SOME_TOPIC),
    st.builds(Resume, SOME_TOPIC),
    st.builds(Horizon, st.just(HORIZON_MS)),
    st.builds(Fence, SOME_TOKEN),
    st.builds(SnapshotTaken, SMALL_MS),
)
LOGS = st.lists(RECORDS, max_size=6)
COPIES = [
    Copy(topic, name, token, put_ms)
    for topic in TOPICS
    for name in IDS
    for token in "rst"
    for put_ms in range(6)
]


@settings(max_examples=300, deadline=None)
@given(LOGS)
def test_the_set_kills_exactly_what_a_record_covers(log: list[Record]) -> None:
    known = set_of(*log)
    for copy in COPIES:
        is_dead = any(covers(record, copy) for record in log)
        assert (death(known, copy) is not None) == is_dead, copy


@settings(deadline=None)
@given(LOGS, st.data())
def test_order_and_repetition_do_not_change_the_answers(
    log: list[Record], data: st.DataObject
) -> None:
    """For pause and resume, the position counts and not the order of adding."""
    shuffled = data.draw(st.permutations(2 * list(enumerate(log))))
    known, expected = Tombstones(), set_of(*log)
    for position, record in shuffled:
        known.add(record, position)
    assert [death(known, copy) for copy in COPIES] == [death(expected, copy) for copy in COPIES]
    assert known.paused == expected.paused
    assert known.count == expected.count


@settings(deadline=None)
@given(LOGS, LOGS)
def test_a_killed_job_stays_killed_whatever_is_added(log: list[Record], more: list[Record]) -> None:
    known, grown = set_of(*log), set_of(*log, *more)
    assert all(death(grown, copy) for copy in COPIES if death(known, copy))


class Years(RuleBasedStateMachine):
    """Jobs that are put, deleted, replaced and purged over years, and consumers that forget.

    The model is the whole log. Whatever a consumer has forgotten, and whenever it started to read:
    it deletes no job that the log does not cover, and every covered job that was put before the
    record and may still be delivered. A job that was put after the record is covered only by a
    clock that is ahead, or in the same millisecond: it may live if it is due later than the record
    could know.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.horizon_ms = HORIZON_MS
        self.jobs: list[Copy] = []
        self.put_at: dict[Copy, int] = {}
        self.log: list[Record] = []
        self.consumers = [Tombstones()]

    def write(self, record: Record) -> None:
        for known in self.consumers:
            known.add(record, len(self.log))
        self.log.append(record)

    def put(self, topic: str, id: str, put_ms: int, due_ms: int) -> Copy:
        copy = Copy(topic, id, f"token-{len(self.jobs)}", put_ms, due_ms)
        self.jobs.append(copy)
        self.put_at[copy] = len(self.log)
        return copy

    def job(self, number: int) -> Copy:
        return self.jobs[number % len(self.jobs)]

    @rule(topic=SOME_TOPIC, id=SOME_ID, delay_ms=DELAY_MS, skew_ms=SKEW_MS)
    def put_with_a_chosen_id(self, topic: str, id: str, delay_ms: int, skew_ms: int) -> None:
        put_ms = self.now_ms + skew_ms
        self.put(topic, id, put_ms, put_ms + delay_ms)

    @rule(topic=SOME_TOPIC, id=SOME_ID)
    def put_with_the_longest_delay(self, topic: str, id: str) -> None:
        self.put(topic, id, self.now_ms, self.now_ms + self.horizon_ms)

    @rule(topic=SOME_TOPIC, delay_ms=DELAY_MS, skew_ms=SKEW_MS)
    def put_with_a_generated_id(self, topic: str, delay_ms: int, skew_ms: int) -> None:
        due_ms = self.now_ms + skew_ms + delay_ms
        generated = ids.generate(due_ms, f"{len(self.jobs):016x}")
        self.put(topic, generated, self.now_ms + skew_ms, due_ms)

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, skew_ms=SKEW_MS)
    def delete_by_id(self, number: int, skew_ms: int) -> None:
        self.write(Delete((self.job(number).id,), self.now_ms + skew_ms))

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, skew_ms=SKEW_MS)
    def delete_by_token(self, number: int, skew_ms: int) -> None:
        copy = self.job(number)
        job = Exact(copy.id, copy.token, copy.due_ms)
        self.write(Delete((job,), self.now_ms + skew_ms))

    @rule(topic=SOME_TOPIC, id=SOME_ID, delay_ms=DELAY_MS, skew_ms=SKEW_MS)
    def replace(self, topic: str, id: str, delay_ms: int, skew_ms: int) -> None:
        put_ms = self.now_ms + skew_ms
        copy = self.put(topic, id, put_ms, put_ms + delay_ms)
        self.write(Keep(id, copy.token, put_ms, copy.due_ms))

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, delay_ms=DELAY_MS, skew_ms=SKEW_MS)
    def reschedule(self, number: int, delay_ms: int, skew_ms: int) -> None:
        old, put_ms = self.job(number), self.now_ms + skew_ms
        new = self.put(old.topic, old.id, put_ms, put_ms + delay_ms)
        due_ms = max(old.due_ms, new.due_ms)
        self.write(Keep(old.id, new.token, put_ms, due_ms, (old.token,)))

    @rule(topic=SOME_TOPIC, skew_ms=SKEW_MS)
    def purge(self, topic: str, skew_ms: int) -> None:
        self.write(Purge(topic, self.now_ms + skew_ms))

    @rule(days=st.sampled_from([1, 60, 365]))
    def raise_horizon(self, days: int) -> None:
        self.write(Horizon(days * DAY_MS))
        self.horizon_ms = max(self.horizon_ms, days * DAY_MS)

    @rule(passed_ms=st.sampled_from([1, HOUR_MS, GRACE_MS, 9 * DAY_MS, HORIZON_MS, 360 * DAY_MS]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(number=NUMBERS)
    def expire(self, number: int) -> None:
        self.consumers[number % len(self.consumers)].expire(self.now_ms)

    @rule(number=NUMBERS, share=st.sampled_from([0.0, 0.3, 1.0]))
    def expire_some(self, number: int, share: float) -> None:
        known = self.consumers[number % len(self.consumers)]
        known.expire_some(self.now_ms - known.grace_ms, share)

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(begins=st.sampled_from(["knowing nothing", "with a floor", "twice"]))
    def start_a_consumer(self, begins: str) -> None:
        floor_ms = self.now_ms - GRACE_MS if begins == "with a floor" else 0
        log = self.log * 2 if begins == "twice" else self.log
        self.consumers.append(set_of(*log, floor_ms=floor_ms))

    @invariant()
    def kills_exactly_the_covered_jobs(self) -> None:
        for copy in self.jobs:
            may_be_dead = any(covers(record, copy) for record in self.log)
            is_dead = any(covers(record, copy) for record in self.log[self.put_at[copy] :])
            may_come = copy.due_ms >= self.now_ms - GRACE_MS
            for known in self.consumers:
                assert known.is_sure_of(copy.due_ms) or not may_come
                if not may_be_dead:
                    assert death(known, copy) is None, "killed a job that no record deletes"
                elif is_dead and known.is_sure_of(copy.due_ms):
                    assert death(known, copy) is not None, "revived"


TestYears = Years.TestCase
TestYears.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


# Deletes


def test_an_id_can_be_used_again_after_a_delete() -> None:
    known = set_of(Delete((IDS[0],), 100))
    assert death(known, Copy("mail", IDS[0], "t", 100)) is Death.DELETED
    assert death(known, Copy("mail", IDS[0], "t", 101)) is None
    assert death(known, Copy("mail", IDS[1], "t", 100)) is None


def test_a_delete_by_token_is_exact_whatever_the_clocks_say() -> None:
    known = set_of(Delete((Exact(IDS[0], "t", 500),), 100))
    assert death(known, Copy("mail", IDS[0], "t", 9_999)) is Death.DELETED
    assert death(known, Copy("mail", IDS[0], "s", 1)) is None


def test_a_packed_record_deletes_all_its_ids() -> None:
    known = set_of(Delete(("a", Exact("b", "t", 0), "c"), 100))
    copies = [Copy("mail", name, "t", 50) for name in "abcd"]
    assert [death(known, copy) is not None for copy in copies] == [True, True, True, False]
    assert known.count == 3


# Replacing


def test_only_the_last_replacement_lives() -> None:
    log = [Keep("a", token, put_ms, put_ms) for put_ms, token in enumerate("xyz", 100)]
    copies = [Copy("mail", "a", token, put_ms) for put_ms, token in enumerate("xyz", 100)]
    replaced = Death.REPLACED
    for order in permutations(log):
        assert [death(set_of(*order), copy) for copy in copies] == [replaced, replaced, None]


@given(st.sets(st.text("0123456789abcdef", min_size=16, max_size=16), min_size=2, max_size=5))
def test_one_of_several_replaces_in_one_millisecond_is_left(tokens: set[str]) -> None:
    for order in (sorted(tokens), sorted(tokens, reverse=True)):
        known = set_of(*(Keep("a", token, 100, 200) for token in order))
        alive = [t for t in tokens if death(known, Copy("mail", "a", t, 100)) is None]
        assert len(alive) == 1


def test_a_replaced_token_is_deleted_though_its_clock_was_ahead() -> None:
    known = set_of(Keep("a", "new", 100, 200, ("old",)))
    assert death(known, Copy("mail", "a", "old", 5_000)) is not None
    assert death(known, Copy("mail", "a", "another", 5_000)) is None


def test_a_later_delete_also_kills_the_kept_job() -> None:
    known = set_of(Keep("a", "new", 100, 200), Delete(("a",), 100))
    assert death(known, Copy("mail", "a", "new", 100)) is Death.DELETED


# Purges


def test_a_purge_kills_its_topic_s_jobs_and_never_expires() -> None:
    known = set_of(Purge("mail", NOW_MS))
    known.expire(NOW_MS + 1_000 * DAY_MS)
    assert death(known, Copy("mail", "a", "t", NOW_MS)) is Death.PURGED
    assert death(known, Copy("mail", "a", "t", NOW_MS + 1)) is None
    assert death(known, Copy("mail.more", "a", "t", NOW_MS)) is None


def test_a_purge_at_an_impossible_time_kills_nothing() -> None:
    assert death(set_of(Purge("mail", -1)), Copy("mail", "a", "t", 0)) is None


# Pause and resume


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_later_of_pause_and_resume_in_the_log_counts(order: tuple[int, ...]) -> None:
    log: list[Record] = [Pause("mail"), Resume("mail"), Pause("mail")]
    known = Tombstones()
    for position in order:
        known.add(log[position], position)
        known.add(Resume("order.close"), position)
    assert known.is_paused("mail")
    assert not known.is_paused("order.close")
    assert known.paused == {"mail"}
    known.add(Resume("mail"), 3)
    assert known.paused == set()


def test_a_topic_is_not_paused_by_default() -> None:
    assert not Tombstones().is_paused("mail")


# Another log


def test_pauses_hold_in_another_log_until_it_resumes_them() -> None:
    known = Tombstones()
    known.add(Pause("mail"), 900)
    known.add(Resume("order.close"), 901)
    known.forget_positions()
    assert known.paused == {"mail"}
    known.add(Resume("mail"), 0)
    known.add(Pause("order.close"), 1)
    assert known.paused == {"order.close"}


@settings(deadline=None)
@given(LOGS)
def test_a_set_can_be_written_to_another_log(
    log: list[Record],
) -> None:
    known = set_of(*log)
    again = set_of(*known.records(for_another_log=True))
    again.table.load(known.table.dump(range(len(known.table))))
    assert [death(again, copy) for copy in COPIES] == [death(known, copy) for copy in COPIES]
    assert (again.paused, again.horizon_ms) == (known.paused, known.horizon_ms)


def test_a_repeated_pause_does_not_override_a_later_resume() -> None:
    known = Tombstones()
    known.add(Pause("t"), 5)
    (again,) = [one for one in known.records(for_another_log=False) if isinstance(one, Pause)]
    known.add(Resume("t"), 6)
    known.add(again, 7)
    assert not known.is_paused("t")


def test_an_extended_id_keeps_its_deletes() -> None:
    """A copy that is released for ten days is due long after its id and its job object say."""
    due_ms = NOW_MS + 10 * DAY_MS
    generated = ids.generate(NOW_MS, "0" * 16)
    for job in (generated, Exact(generated, "token", NOW_MS)):
        known = Tombstones()
        known.add(known_until(generated, due_ms))
        assert known.kills("t", generated, "token", NOW_MS) is None
        known.add(Delete((job,), NOW_MS))
        known.expire(due_ms)
        assert known.kills("t", generated, "token", NOW_MS) is Death.DELETED


# Lifetime


def lives_until(known: Tombstones, copy: Copy) -> int:
    """Return the last moment at which a job is still deleted after all possible expiry."""
    assert death(known, copy) is not None
    low, high = NOW_MS, NOW_MS + 10_000 * DAY_MS
    while low + 1 < high:
        middle = (low + high) // 2
        aged = Tombstones()
        aged.table.load(known.table.dump(range(len(known.table))))
        aged.expire(middle)
        low, high = (middle, high) if death(aged, copy) else (low, middle)
    return low


@pytest.mark.parametrize("delay_ms", [HOUR_MS, 3_000 * DAY_MS])
def test_a_tombstone_of_a_generated_id_lives_until_due_plus_grace(delay_ms: int) -> None:
    generated = ids.generate(NOW_MS + delay_ms, "0" * 16)
    copy = Copy("mail", generated, "t", NOW_MS)
    assert lives_until(set_of(Delete((generated,), NOW_MS)), copy) == NOW_MS + delay_ms + GRACE_MS


def test_a_tombstone_of_an_id_already_due_lives_from_its_own_time() -> None:
    generated = ids.generate(NOW_MS - 99 * DAY_MS, "0" * 16)
    copy = Copy("mail", generated, "t", 5)
    assert lives_until(set_of(Delete((generated,), NOW_MS)), copy) == NOW_MS + GRACE_MS


def test_a_tombstone_of_a_chosen_id_lives_for_horizon_plus_grace() -> None:
    copy = Copy("mail", "a", "t", NOW_MS)
    for record in (Delete(("a",), NOW_MS), Keep("a", "new", NOW_MS + 1, NOW_MS)):
        until = lives_until(set_of(record), copy)
        assert until - NOW_MS - HORIZON_MS - GRACE_MS in (0, 1)


def test_a_horizon_is_only_raised() -> None:
    copy = Copy("mail", "a", "t", NOW_MS)
    known = set_of(Horizon(99 * DAY_MS), Horizon(50 * DAY_MS), Delete(("a",), NOW_MS))
    assert lives_until(known, copy) == NOW_MS + 99 * DAY_MS + GRACE_MS


def test_a_known_due_time_takes_precedence_over_the_horizon() -> None:
    copy = Copy("mail", "a", "t", NOW_MS)
    for record in (Delete(("a",), NOW_MS, NOW_MS + 7), Delete((Exact("a", "t", NOW_MS + 7),), 0)):
        assert lives_until(set_of(record), copy) == NOW_MS + 7 + GRACE_MS


def rescheduled(due_ms: int) -> tuple[Copy, Keep]:
    """Return a job with a generated id that was due in an hour and was postponed."""
    generated = ids.generate(NOW_MS + HOUR_MS, "0" * 16)
    keep = Keep(generated, "new", NOW_MS + 10, due_ms, ("old",))
    return Copy("mail", generated, "new", NOW_MS + 10, due_ms), keep


def test_a_delete_of_a_postponed_job_lives_until_its_new_time() -> None:
    due_ms = NOW_MS + 100 * DAY_MS
    copy, keep = rescheduled(due_ms)
    delete = Delete((copy.id,), NOW_MS + 20)
    for known in (set_of(keep, delete), set_of(delete, keep)):
        assert lives_until(known, copy) == due_ms + GRACE_MS


def test_a_delete_of_a_postponed_job_is_added_even_if_its_own_time_has_passed() -> None:
    """Read days later, its own time and that of its id have passed, but the job is not due."""
    copy, keep = rescheduled(NOW_MS + 100 * DAY_MS)
    known = set_of(keep, Delete((copy.id,), NOW_MS + 20), floor_ms=NOW_MS + 9 * DAY_MS)
    assert known.is_sure_of(copy.due_ms)
    assert death(known, copy) is Death.DELETED


def test_a_delete_at_time_0_kills_nothing_and_extends_the_id() -> None:
    """Such a record extends how long an id is known, for a copy due later than the id says."""
    generated, due_ms = ids.generate(NOW_MS + HOUR_MS, "0" * 16), NOW_MS + 100 * DAY_MS
    copy, hold = Copy("mail", generated, "t", NOW_MS, due_ms), Delete((generated,), 0, due_ms)
    assert death(set_of(hold), copy) is None
    assert lives_until(set_of(hold, Delete((generated,), NOW_MS)), copy) == due_ms + GRACE_MS


def test_an_expired_tombstone_is_not_added() -> None:
    known = set_of(Delete(("a", Exact("b", "t", 7)), 5, 7), floor_ms=8)
    assert known.count == 0
    known.add(Delete(("a",), 5, 8))
    assert known.count == 1


def test_the_set_is_not_sure_of_jobs_due_before_its_floor() -> None:
    known = set_of(Delete(("a",), NOW_MS, NOW_MS + 7))
    assert known.is_sure_of(0)
    known.expire(NOW_MS + GRACE_MS)
    known.expire(NOW_MS - DAY_MS)
    assert [known.is_sure_of(NOW_MS + delta) for delta in (-1, 0)] == [False, True]


def test_expiry_in_shares_reaches_the_whole_table() -> None:
    known = set_of(Delete(tuple(f"order-{number}" for number in range(10_000)), NOW_MS, NOW_MS))
    counts = []
    for _ in range(11):
        known.expire_some(NOW_MS + 1, 0.1)
        counts.append(known.count)
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) >= 10
    assert counts[-1] == 0
    known.add(Delete(("a",), NOW_MS, NOW_MS + 1))
    for _ in range(11):
        known.expire_some(NOW_MS + 2, 0.1)
    assert known.count == 0


def test_count_and_memory_are_reported() -> None:
    known = set_of(Delete(("a", "b"), 1), Keep("a", "t", 2, 3, ("s",)), Purge("mail", 1))
    assert known.count == 4
    assert 0 < known.memory_bytes < 100_000
