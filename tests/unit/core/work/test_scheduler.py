"""The scheduler: limits hold, no topic starves another, and a suspect runs alone."""

import heapq
import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rabbitdelay.core.work.scheduler import (
    SUSPECT_PATIENCE_SECONDS,
    Choice,
    Scheduler,
    Start,
    StartSuspect,
    is_suspect,
)
from rabbitdelay.errors import InvalidConfiguration

TOPICS = "abcde"
LIMITS = st.integers(1, len(TOPICS)).flatmap(
    lambda count: st.fixed_dictionaries(
        {topic: st.none() | st.integers(1, 4) for topic in TOPICS[:count]}
    )
)
NUMBERS = st.integers(0, 59)
DURATIONS = st.lists(st.floats(0.01, 3), min_size=1, max_size=8)


class Worker(RuleBasedStateMachine):
    """A worker whose jobs arrive and end in any order, beside a model of the rules."""

    @initialize(concurrency=st.integers(1, 8), limits=LIMITS)
    def begin(self, concurrency: int, limits: dict[str, int | None]) -> None:
        self.scheduler = Scheduler(concurrency, limits)
        self.concurrency, self.limits = concurrency, limits
        self.waiting: Counter[str] = Counter()
        self.suspects: list[tuple[float, str]] = []
        self.running: list[str] = []
        self.is_alone = False
        self.passed_over: Counter[str] = Counter()
        self.now = 0.0

    @rule(number=NUMBERS, count=st.integers(1, 5))
    def jobs_come(self, number: int, count: int) -> None:
        self.waiting[self.topic(number)] += count
        self.dispatch()

    @rule(number=NUMBERS)
    def suspect_comes(self, number: int) -> None:
        self.suspects.append((self.now, self.topic(number)))
        self.dispatch()

    @precondition(lambda self: self.running)
    @rule(number=NUMBERS, seconds=st.sampled_from([0.0, 0.1, 0.9, 1.0, 2.5]))
    def job_ends(self, number: int, seconds: float) -> None:
        self.now += seconds
        topic = self.running.pop(number % len(self.running))
        self.is_alone = False
        self.scheduler.ended(topic, self.now)
        self.dispatch()

    def topic(self, number: int) -> str:
        return TOPICS[number % len(self.limits)]

    def dispatch(self) -> None:
        while (choice := self.choose()) is not None:
            assert not self.is_alone, "nothing starts beside a suspect"
            if isinstance(choice, Start):
                self.start(choice.topic)
            else:
                self.start_suspect()
            self.limits_hold()
        self.nothing_waits_in_vain()

    def choose(self) -> Choice:
        waiting = {topic for topic, count in self.waiting.items() if count}
        return self.scheduler.choose(
            waiting, self.suspects[0][0] if self.suspects else None, self.now
        )

    def start(self, topic: str) -> None:
        assert self.waiting[topic], "a job that is not there cannot start"
        assert self.may_start(topic)
        self.passed_over += Counter(other for other in self.limits if self.may_start(other))
        del self.passed_over[topic]
        assert all(times < len(self.limits) for times in self.passed_over.values())
        self.waiting[topic] -= 1
        self.running.append(topic)
        self.scheduler.started(topic)

    def start_suspect(self) -> None:
        assert not self.running, "a suspect runs alone"
        self.is_alone = True
        _, topic = self.suspects.pop()
        self.running.append(topic)
        self.scheduler.alone(topic, self.now)

    def may_start(self, topic: str) -> bool:
        """The rule by definition: a slot is free, and no other topic needs it."""
        free = self.concurrency - len(self.running)
        others_idle = len(set(self.limits) - set(self.running) - {topic})
        below_limit = self.running.count(topic) < (self.limits[topic] or self.concurrency)
        leaves_enough = topic not in self.running or free > others_idle
        keeps_slots = self.concurrency >= len(self.limits)
        return bool(
            self.waiting[topic] and free and below_limit and (leaves_enough or not keeps_slots)
        )

    def limits_hold(self) -> None:
        counts = Counter(self.running)
        assert self.scheduler.running == len(self.running) <= self.concurrency
        assert self.scheduler.free == self.concurrency - len(self.running)
        for topic, limit in self.limits.items():
            assert self.scheduler.running_of(topic) == counts[topic] <= (limit or self.concurrency)

    def nothing_waits_in_vain(self) -> None:
        if not self.running:
            assert not self.suspects
            assert not self.waiting.total()
        if not self.suspects and not self.is_alone:
            assert not any(self.may_start(topic) for topic in self.limits)


TestWorker = Worker.TestCase
TestWorker.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@given(limits=LIMITS, spare=st.integers(0, 5), data=st.data())
def test_with_a_slot_for_each_a_topic_with_none_running_starts_at_once(
    limits: dict[str, int | None], spare: int, data: st.DataObject
) -> None:
    """However greedy the others were."""
    scheduler = Scheduler(len(limits) + spare, limits)
    late = data.draw(st.sampled_from(sorted(limits)))
    greedy = set(limits) - {late}
    while (topic := scheduler.next(greedy)) is not None:
        scheduler.started(topic)
    assert scheduler.next({late}) == late


def test_one_busy_topic_leaves_one_slot_for_each_other() -> None:
    scheduler = Scheduler(10, {"slow": None, "mail": None, "report": None})
    while (topic := scheduler.next({"slow"})) is not None:
        scheduler.started(topic)
    assert (scheduler.running_of("slow"), scheduler.free) == (8, 2)


def test_with_fewer_slots_than_topics_they_take_turns() -> None:
    scheduler = Scheduler(2, dict.fromkeys("abc"))
    order = []
    for _ in range(6):
        topic = scheduler.next("abc")
        assert topic is not None
        scheduler.started(topic)
        scheduler.ended(topic, 0.0)
        order.append(topic)
    assert order == [*"abcabc"]


def test_a_topic_at_its_limit_keeps_its_turn() -> None:
    scheduler = Scheduler(2, {"a": 1, "b": None, "c": None})
    scheduler.started("a")
    for topic in "bcb":
        assert scheduler.next("abc") == topic
        scheduler.started(topic)
        scheduler.ended(topic, 0.0)
    scheduler.ended("a", 0.0)
    assert scheduler.next("abc") == "a"


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_an_invalid_limit_is_explained(count: int) -> None:
    with pytest.raises(InvalidConfiguration, match=r"^concurrency must be"):
        Scheduler(count, {"mail": None})
    with pytest.raises(InvalidConfiguration, match=r"^concurrency of mail must be"):
        Scheduler(5, {"mail": count})


# Suspects


def test_a_suspect_does_not_use_its_topic_s_turn() -> None:
    scheduler = Scheduler(1, dict.fromkeys("ab"))
    scheduler.alone("a", 0.0)
    scheduler.ended("a", 0.1)
    assert scheduler.next("ab") == "a"


def test_a_job_is_a_suspect_when_two_consumers_died_with_it() -> None:
    assert [is_suspect(redeliveries) for redeliveries in range(4)] == [False, False, True, True]


def test_a_suspect_starts_at_once_when_nothing_else_waits() -> None:
    assert Scheduler(5, {"a": None}).choose((), 0.0, 0.0) == StartSuspect()


def test_others_go_first_for_a_moment_and_then_nothing_starts() -> None:
    scheduler = Scheduler(5, {"a": None})
    assert scheduler.choose("a", 0.0, 1.0) == Start("a")
    scheduler.started("a")
    assert scheduler.choose("a", 0.0, 1.0) == Start("a")
    assert scheduler.choose("a", 0.0, 1.1) is None
    scheduler.ended("a", 1.2)
    assert scheduler.choose("a", 0.0, 1.2) == StartSuspect()


def test_nothing_starts_beside_a_suspect() -> None:
    scheduler = Scheduler(5, {"a": None, "b": None})
    scheduler.alone("a", 0.0)
    assert scheduler.choose("ab", 0.0, 99.0) is None
    assert scheduler.next("ab") is None
    scheduler.ended("a", 99.0)
    assert scheduler.choose("ab", None, 99.0) == Start("a")


def test_suspects_follow_one_another_for_a_moment_and_then_the_others_have_one() -> None:
    scheduler = Scheduler(5, {"a": None})
    for start, end in ((2.0, 2.5), (2.6, 2.9), (2.95, 3.5)):
        assert scheduler.choose("a", 0.0, start) == StartSuspect()
        scheduler.alone("a", start)
        scheduler.ended("a", end)
    for now in (3.5, 4.5):
        assert scheduler.choose("a", 0.0, now) == Start("a")
    assert scheduler.choose("a", 0.0, 4.6) == StartSuspect()


@settings(max_examples=50, deadline=None)
@given(concurrency=st.integers(1, 6), jobs=DURATIONS, suspects=DURATIONS)
def test_neither_suspects_nor_others_starve(
    concurrency: int, jobs: list[float], suspects: list[float]
) -> None:
    """With an endless supply of both, each starts again within a bounded time."""
    starts = _simulate(concurrency, jobs, suspects, until=60.0)
    bound = SUSPECT_PATIENCE_SECONDS + max(jobs) + max(suspects) + 0.001
    for kind in (Start, StartSuspect):
        times = [0.0, *(at for at, what in starts if what is kind), 60.0]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert max(gaps) <= bound, kind


def _simulate(
    concurrency: int, jobs: list[float], suspects: list[float], *, until: float
) -> list[tuple[float, type[Start | StartSuspect]]]:
    """Return when each kind of job starts in a worker that always has both waiting."""
    scheduler, now = Scheduler(concurrency, {"a": None}), 0.0
    ends: list[float] = []
    starts: list[tuple[float, type[Start | StartSuspect]]] = []
    while now < until:
        while (choice := scheduler.choose("a", 0.0, now)) is not None:
            durations = jobs if isinstance(choice, Start) else suspects
            heapq.heappush(ends, now + durations[len(starts) % len(durations)])
            starts.append((now, type(choice)))
            if isinstance(choice, Start):
                scheduler.started("a")
            else:
                scheduler.alone("a", now)
        now = heapq.heappop(ends)
        scheduler.ended("a", now)
    return starts
