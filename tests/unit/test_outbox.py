"""The outbox: every put is resolved once, and nothing is forgotten."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rabbitdelay.core.envelope import encode
from rabbitdelay.core.outbox import Outbox, Pending, Target, timeout_error
from rabbitdelay.core.topology import Topology
from rabbitdelay.errors import BrokerBlocked, OutcomeUnknown
from rabbitdelay.models import Job


def pending(
    number: int = 0, *, delay_ms: int = 0, put_at: float = 0, deadline: float = 30
) -> Pending:
    job = Job("t", f"job-{number}", f"token-{number}", 0, delay_ms, 60_000, b"")
    return Pending(job, encode(job), delay_ms, put_at, deadline, lambda *_: None, number)


class Broker(RuleBasedStateMachine):
    """A broker that confirms, refuses, returns and dies in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.now = 0.0
        self.made: list[Pending] = []
        self.outcome: dict[int, str] = {}
        self.on_channel: list[Pending] = []  # by tag - 1

    def resolve(self, done: list[Pending], outcome: str) -> None:
        for item in done:
            assert item.position not in self.outcome, "resolved twice"
            item.resolved = True
            self.outcome[item.position] = outcome

    @rule(lifetime=st.floats(0.5, 20))
    def put(self, lifetime: float) -> None:
        item = pending(len(self.made), put_at=self.now, deadline=self.now + lifetime)
        self.made.append(item)
        self.outbox.add(item)

    @rule(settling=st.floats(0, 5))
    def send(self, settling: float) -> None:
        item = self.outbox.next()
        if item is not None:
            self.outbox.sent(item, self.now + settling if settling > 1 else 0.0)
            self.on_channel.append(item)

    @precondition(lambda self: self.on_channel)
    @rule(data=st.data(), multiple=st.booleans())
    def confirm(self, data: st.DataObject, multiple: bool) -> None:  # noqa: FBT001 - drawn
        tag = data.draw(st.integers(1, len(self.on_channel)))
        done = self.outbox.confirmed(tag, multiple=multiple, now=self.now)
        assert all(item.safe_at <= self.now for item in done)
        self.resolve(done, "confirmed")

    @precondition(lambda self: self.on_channel)
    @rule(data=st.data(), multiple=st.booleans())
    def refuse(self, data: st.DataObject, multiple: bool) -> None:  # noqa: FBT001 - drawn
        tag = data.draw(st.integers(1, len(self.on_channel)))
        self.outbox.put_back(*self.outbox.refused(tag, multiple=multiple))

    @precondition(lambda self: self.on_channel)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.on_channel)).job
        item = self.outbox.returned(job.id, job.token, "e", "k")
        if item is not None:
            self.resolve([item], "returned")

    @rule()
    def lose_connection(self) -> None:
        self.outbox.connection_lost()
        self.on_channel.clear()

    @rule(seconds=st.floats(0.1, 4))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.resolve(self.outbox.settled(self.now), "confirmed")
        self.resolve(self.outbox.expire(self.now), "expired")

    @invariant()
    def everything_is_somewhere(self) -> None:
        inside = [item.position for item in self.outbox if not item.resolved]
        assert sorted([*inside, *self.outcome]) == list(range(len(self.made)))
        assert len(self.outbox) == len(inside)

    def teardown(self) -> None:
        """Whatever happened, a connection that stays up resolves all."""
        self.outbox.connection_lost()
        while (item := self.outbox.next()) is not None:
            self.outbox.sent(item, 0.0)
        self.resolve(
            self.outbox.confirmed(len(self.made), multiple=True, now=self.now), "confirmed"
        )
        assert sorted(self.outcome) == list(range(len(self.made)))


TestBroker = Broker.TestCase
TestBroker.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_a_lost_connection_sends_again_in_the_same_order() -> None:
    outbox = Outbox()
    items = [pending(number) for number in range(5)]
    for item in items:
        outbox.add(item)
    for safe_at in (9.0, 0.0, 0.0):
        outbox.sent(outbox.next() or items[0], safe_at)
    assert outbox.confirmed(1, multiple=False, now=0) == []  # its queue has yet to settle
    outbox.connection_lost()
    assert [outbox.next() for _ in items] == items


@pytest.mark.parametrize(
    ("sent_at", "delay_ms"),
    [
        (100.5, 60_000),  # one hop and not three
        (120.0, 40_000),
        (400.0, 0),
    ],
)
def test_a_put_that_waited_goes_with_the_rest_of_its_delay(sent_at: float, delay_ms: int) -> None:
    assert pending(delay_ms=60_000, put_at=100.0).delay_ms(sent_at) == delay_ms


def test_the_delay_stays_the_same_until_the_connection_is_lost() -> None:
    """Else a put would need other queues by the time that its queues are made."""
    outbox, item = Outbox(), pending(delay_ms=60_000, put_at=100.0)
    outbox.add(item)
    assert item.delay_ms(100.0) == item.delay_ms(120.0) == 60_000
    outbox.connection_lost()
    assert item.delay_ms(130.0) == 30_000


def test_what_waits_goes_with_the_delay_that_was_asked_for_and_not_that_of_its_job() -> None:
    """A job that is given back: the delay of its put is long over."""
    job = Job("t", "job", "token", 0, 3_600_000, 60_000, b"")
    item = Pending(job, encode(job), 2_000, 100.0, 130.0, lambda *_: None)
    assert item.target is None
    assert item.delay_ms(100.0) == 2_000
    item.begin_again()
    assert item.delay_ms(101.5) == 500


def test_a_message_to_a_target_is_resolved_like_any_other() -> None:
    """A response, or a job that is buried: it is sent again after a lost connection, and once."""
    outbox, job = Outbox(), pending().job
    part = Topology("ns").responses("t")
    target = Target("ns.v1.responses", part.queue.name, part)
    item = Pending(job, encode(job), 0, 0.0, 30.0, lambda *_: None, target=target)
    outbox.add(item)
    assert outbox.next() is item
    outbox.sent(item, 5.0)
    assert outbox.confirmed(1, multiple=False, now=1.0) == []
    assert item.settling
    outbox.connection_lost()
    assert outbox.next() is item
    assert (item.target, item.settling, item.sent) == (target, False, True)
    outbox.sent(item, 5.0)
    assert outbox.confirmed(1, multiple=False, now=6.0) == [item]
    assert len(outbox) == 0


def test_what_is_returned_is_found_by_the_id_of_its_message() -> None:
    """A message without an id was given one: that of the job, which the message has by then."""
    outbox, item, another = Outbox(), pending(1), pending(2)
    for one in (item, another):
        outbox.sent(one, 0.0)
    assert outbox.returned("job-2", "token-1", "e", "k") is None
    assert outbox.returned(None, "token-2", "e", "k") is None
    assert outbox.returned("job-2", "token-2", "e", "k") is another
    assert outbox.returned("job-2", "token-2", "e", "k") is None
    assert outbox.confirmed(2, multiple=True, now=0.0) == [item]


def test_what_is_discarded_is_nowhere() -> None:
    outbox, items = Outbox(), [pending(number) for number in range(3)]
    outbox.sent(items[0], 0.0)
    outbox.sent(items[1], 9.0)
    outbox.confirmed(2, multiple=False, now=0.0)
    outbox.add(items[2])
    for item in items:
        outbox.discard(item)
    assert (len(outbox), outbox.next(), outbox.settled(99.0)) == (0, None, [])


def test_the_error_says_whether_it_may_arrive_and_why() -> None:
    item = pending()
    error = timeout_error(item, None, None)
    assert type(error) is OutcomeUnknown
    assert not error.sent
    assert "was never sent" in str(error)
    item.settling = True
    assert "too new to survive" in str(timeout_error(item, None, None))
    item.settling, item.sent = False, True
    blocked = timeout_error(item, "low on disk", None)
    assert isinstance(blocked, BrokerBlocked)
    assert blocked.sent
    assert "low on disk" in str(blocked)


def test_of_two_messages_of_one_job_the_one_is_returned_that_went_there() -> None:
    outbox = Outbox()
    buried, response = pending(1), pending(1)
    buried.target, response.target = Target("buried", "t"), Target("", "gone")
    for each in (buried, response):
        outbox.sent(each, 0.0)
    assert outbox.returned("job-1", "token-1", "", "gone") is response
    assert outbox.returned("job-1", "token-1", "", "gone") is None
