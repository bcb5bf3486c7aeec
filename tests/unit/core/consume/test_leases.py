"""Leases: in any order of events, a job is finished once or given up once."""

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from rabbitdelay.core.consume.leases import Do, Lease, Leases
from rabbitdelay.core.jobs.envelope import encode
from rabbitdelay.core.jobs.states import Event, State
from rabbitdelay.errors import LeaseLost
from rabbitdelay.models import Job

TTR_SECONDS = 10.0


def make_lease(number: int = 1, *, ttr_ms: int = 10_000) -> Lease:
    job = Job("t", f"job-{number}", f"token-{number}", 0, 0, ttr_ms, b"")
    return Lease(job, encode(job), channel=1, tag=number)


def reserved(leases: Leases, number: int = 1, now: float = 0.0) -> Lease:
    lease = make_lease(number)
    leases.take(lease)
    leases.reserve(lease, now)
    return lease


class Consumer(RuleBasedStateMachine):
    """A consumer with handlers, timers, publishes and a connection, in any order of events.

    The model is the broker's view: each message is unacknowledged until it is acked, nacked or its
    connection is lost; and the number of confirmed copies of it.
    """

    unread = Bundle("unread")
    working = Bundle("working")
    leaving = Bundle("leaving")

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.now = 0.0
        self.unacked: set[Lease] = set()
        self.acked: set[Lease] = set()
        self.given_back: set[Lease] = set()
        self.copies: dict[Lease, int] = {}
        self.finished: set[Lease] = set()
        self.number = 0

    def do(self, lease: Lease, do: Do) -> None:
        if do is Do.NOTHING:
            return
        assert lease in self.unacked, "settled twice, or on a connection that is gone"
        self.unacked.remove(lease)
        (self.acked if do is Do.ACK else self.given_back).add(lease)

    @rule(target=unread)
    def deliver(self) -> Lease:
        self.number += 1
        lease = make_lease(self.number)
        self.leases.take(lease)
        self.unacked.add(lease)
        return lease

    @rule(target=working, lease=consumes(unread))
    def reserve(self, lease: Lease) -> Lease:
        if lease in self.unacked:
            self.leases.reserve(lease, self.now)
        return lease

    @rule(lease=working)
    def touch(self, lease: Lease) -> None:
        try:
            assert self.leases.touch(lease, self.now) == self.now + TTR_SECONDS
        except LeaseLost:
            assert lease.is_over or self.now >= lease.deadline

    @rule(lease=working)
    def finish(self, lease: Lease) -> None:
        could = not lease.is_over and self.now < lease.deadline
        try:
            self.do(lease, self.leases.finish(lease, self.now))
            self.finished.add(lease)
        except LeaseLost:
            assert not could
        else:
            assert could

    @rule(target=leaving, lease=working, event=st.sampled_from([Event.RELEASE, Event.BURY]))
    def leave(self, lease: Lease, event: Event) -> Lease:
        could = not lease.is_over and self.now < lease.deadline
        try:
            self.leases.leave(lease, event, self.now)
        except LeaseLost:
            assert not could
        else:
            assert could
        return lease

    @rule(target=leaving, seconds=st.floats(0, 15))
    def time_passes(self, seconds: float) -> object:
        self.now += seconds
        return multiple()

    @rule(target=leaving)
    def expire(self) -> object:
        expired = self.leases.expire(self.now)
        assert all(lease.deadline <= self.now for lease in expired)
        following = self.leases.next_expiry()
        assert following is None or following > self.now
        return multiple(*expired)

    @rule(lease=leaving)
    def confirm(self, lease: Lease) -> None:
        """Confirm the copy, whatever happened to the connection in the meantime."""
        if lease.leaving is not None:
            self.copies[lease] = self.copies.get(lease, 0) + 1
        self.do(lease, self.leases.copied(lease))

    @rule(lease=leaving)
    def refuse(self, lease: Lease) -> None:
        self.do(lease, self.leases.not_copied(lease))

    @rule(lease=working | unread)
    def hand_back(self, lease: Lease) -> None:
        self.do(lease, self.leases.hand_back(lease))

    @rule()
    def lose(self) -> None:
        lost = self.leases.lose()
        assert set(lost) == self.unacked
        self.given_back |= self.unacked
        self.unacked.clear()

    @rule(lease=working)
    def adopt(self, lease: Lease) -> None:
        """Redeliver the message while its handler is still running."""
        if lease.ended_by is Event.LOSE and lease in self.given_back:
            self.number += 1
            again = make_lease(self.number)
            self.leases.adopt(lease, again)
            self.given_back.remove(lease)
            self.unacked.add(lease)

    @invariant()
    def finished_once_or_given_back(self) -> None:
        assert len(self.leases) == len(self.unacked)
        for lease in self.acked:
            copied = self.copies.get(lease, 0)
            assert (lease in self.finished) != (copied > 0), "both finished and given up"
        assert not self.finished & self.unacked
        assert not self.finished & self.given_back


TestConsumer = Consumer.TestCase
TestConsumer.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_finish_at_the_deadline_is_refused_without_expire() -> None:
    leases = Leases()
    lease = reserved(leases)
    with pytest.raises(LeaseLost, match="ttr had passed"):
        leases.finish(lease, TTR_SECONDS)
    assert leases.expire(TTR_SECONDS) == [lease]
    assert leases.copied(lease) is Do.ACK


def test_touch_restarts_the_ttr() -> None:
    leases = Leases()
    lease = reserved(leases)
    assert leases.touch(lease, 9.0) == 19.0
    assert leases.expire(10.0) == []
    assert leases.next_expiry() == 19.0
    assert leases.expire(19.0) == [lease]


def test_a_prefetched_job_has_no_deadline() -> None:
    leases = Leases()
    lease = make_lease()
    leases.take(lease)
    assert leases.next_expiry() is None
    assert leases.expire(1e9) == []
    assert leases.hand_back(lease) is Do.NACK


def test_a_message_is_requeued_when_its_copy_is_not_published() -> None:
    leases = Leases()
    lease = reserved(leases)
    leases.leave(lease, Event.RELEASE, 1.0)
    assert leases.not_copied(lease) is Do.NACK


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda leases, lease: leases.finish(lease, 1.0), "already finished"),
        (lambda leases, lease: leases.leave(lease, Event.RELEASE, 1.0), "already released"),
        (lambda leases, lease: leases.leave(lease, Event.BURY, 1.0), "already buried"),
        (lambda leases, _: leases.lose(), "connection was lost"),
        (lambda leases, _: leases.expire(99.0), "ttr had passed"),
    ],
)
def test_lease_lost_says_how_the_lease_ended(end: object, why: str) -> None:
    leases = Leases()
    lease = reserved(leases)
    assert callable(end)
    end(leases, lease)
    with pytest.raises(LeaseLost, match=why):
        leases.finish(lease, 2.0)


def test_a_settled_job_is_not_kept_until_its_deadline() -> None:
    leases = Leases()
    before = {id(one) for one in gc.get_objects() if isinstance(one, Lease)}
    for number in range(10):
        leases.finish(reserved(leases, number), 1.0)
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Lease)]
    assert not [one for one in kept if id(one) not in before]


def test_deadlines_of_settled_jobs_are_removed() -> None:
    leases = Leases()
    for number in range(10_000):
        leases.finish(reserved(leases, number), 1.0)
    assert len(leases._deadlines) < 2_000


def test_an_adopted_lease_keeps_its_deadline() -> None:
    leases = Leases()
    lease = reserved(leases)
    leases.lose()
    leases.adopt(lease, make_lease(7))
    assert (lease.state, lease.tag) == (State.RESERVED, 7)
    assert leases.next_expiry() == TTR_SECONDS
    assert leases.finish(lease, 1.0) is Do.ACK


def test_a_lease_has_exceeded_its_ttr_from_the_deadline_unless_it_is_settled() -> None:
    leases = Leases()
    late, finished = reserved(leases, 1), reserved(leases, 2)
    leases.finish(finished, 1.0)
    assert not late.has_exceeded_ttr(TTR_SECONDS - 0.1)
    assert late.has_exceeded_ttr(TTR_SECONDS)
    assert not finished.has_exceeded_ttr(TTR_SECONDS)
    assert leases.expire(TTR_SECONDS) == [late]
    assert late.has_exceeded_ttr(TTR_SECONDS)


def test_a_job_that_was_lost_is_not_acknowledged_when_its_delete_is_learned() -> None:
    leases = Leases()
    lease = reserved(leases)
    leases.lose()
    assert leases.delete(lease) is Do.NOTHING
    assert (lease.state, lease.ended_by) == (State.READY, Event.LOSE)


def test_a_job_that_is_only_prefetched_cannot_be_finished() -> None:
    leases, lease = Leases(), make_lease()
    leases.take(lease)
    with pytest.raises(LeaseLost, match=r"job job-1 \(t\) is ready"):
        leases.finish(lease, 0.0)
    assert leases.holds(lease)
