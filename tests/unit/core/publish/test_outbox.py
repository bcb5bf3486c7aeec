"""The outbox: every put is resolved exactly once, and none is lost."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.jobs.envelope import Message, encode
from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.core.publish.outbox import LadderEntry, Outbox, Pending, Target, timeout_error
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import BrokerBlocked, OutcomeUnknown
from rabbitdelay.models import Job


def pending(
    number: int = 0, *, delay_ms: int = 0, put_at: float = 0, deadline: float = 30
) -> Pending:
    job = Job("t", f"job-{number}", f"token-{number}", 0, delay_ms, 60_000, b"")
    entry = LadderEntry("t", delay_ms)
    return Pending(encode(job), entry, put_at, deadline, lambda _: None)


def rest_ms(item: Pending, now: float) -> int:
    assert isinstance(item.route, LadderEntry)
    return item.delay_ms(item.route, now)


def number_of(item: Pending) -> int:
    return int(str(item.message.message_id).removeprefix("job-"))


def send(flight: Flight, item: Pending | None, safe_at: float = 0.0) -> None:
    assert item is not None
    item.safe_at, item.sent = safe_at, True
    flight.add(item)


def returned(
    message_id: str | None, token: str | None, *, exchange: str = "e", routing_key: str = "k"
) -> Returned:
    encoded = b"" if token is None else field_table.encode({"rd-token": token})
    headers = field_table.split(encoded, 0, len(encoded))
    return Returned(1, "NO_ROUTE", exchange, routing_key, message_id, headers)


class Channel:
    """A channel, with the messages that the broker has read from it; tag N is at index N - 1."""

    def __init__(self, outbox: Outbox) -> None:
        self.flight = outbox.new_flight()
        self.read: list[Pending] = []


class Broker(RuleBasedStateMachine):
    """A broker that confirms, refuses, returns and crashes in any order, on several channels."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.now = 0.0
        self.made: list[Pending] = []
        self.outcome: dict[int, str] = {}
        self.channels = [Channel(self.outbox)]

    def resolve(self, done: list[Pending], outcome: str) -> None:
        for item in done:
            assert number_of(item) not in self.outcome, "resolved twice"
            item.resolved = True
            self.outcome[number_of(item)] = outcome

    @rule(lifetime=st.floats(0.5, 20))
    def put(self, lifetime: float) -> None:
        item = pending(len(self.made), put_at=self.now, deadline=self.now + lifetime)
        self.made.append(item)
        self.outbox.add(item)

    @rule(data=st.data(), stabilising=st.floats(0, 5), key=st.sampled_from(["", "a", "b"]))
    def send(self, data: st.DataObject, stabilising: float, key: str) -> None:
        item = self.outbox.next_aside(key) if key else self.outbox.next()
        channel = data.draw(st.sampled_from(self.channels))
        if item is not None:
            send(channel.flight, item, self.now + stabilising if stabilising > 1 else 0.0)
            channel.read.append(item)

    @rule(key=st.sampled_from(["a", "b"]), first=st.booleans())
    def set_aside(self, key: str, first: bool) -> None:  # noqa: FBT001 - drawn
        if (item := self.outbox.next()) is not None:
            (self.outbox.set_aside_first if first else self.outbox.set_aside)(key, item)
            assert self.outbox.has_aside(key)

    @rule(key=st.sampled_from(["a", "b"]))
    def bring_back(self, key: str) -> None:
        self.outbox.bring_back(key)
        assert not self.outbox.has_aside(key)

    @rule()
    def open_channel(self) -> None:
        self.channels.append(Channel(self.outbox))

    @precondition(lambda self: len(self.channels) > 1)
    @rule()
    def close_channel(self) -> None:
        channel = self.channels.pop(0)
        self.outbox.put_back(*self.outbox.end_flight(channel.flight))

    def drawn(self, data: st.DataObject) -> tuple[Channel, int]:
        channel = data.draw(st.sampled_from([one for one in self.channels if one.read]))
        return channel, data.draw(st.integers(1, len(channel.read)))

    @precondition(lambda self: any(channel.read for channel in self.channels))
    @rule(data=st.data(), multiple=st.booleans())
    def confirm(self, data: st.DataObject, multiple: bool) -> None:  # noqa: FBT001 - drawn
        channel, tag = self.drawn(data)
        done = self.outbox.confirmed(channel.flight.take(tag, multiple=multiple), self.now)
        assert all(item.safe_at <= self.now for item in done)
        self.resolve(done, "confirmed")

    @precondition(lambda self: any(channel.read for channel in self.channels))
    @rule(data=st.data(), multiple=st.booleans())
    def refuse(self, data: st.DataObject, multiple: bool) -> None:  # noqa: FBT001 - drawn
        channel, tag = self.drawn(data)
        self.outbox.set_aside_first("a", *channel.flight.take(tag, multiple=multiple))

    @precondition(lambda self: any(channel.read for channel in self.channels))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        channel, tag = self.drawn(data)
        message = channel.read[tag - 1].message
        token = message.headers["rd-token"]
        item = channel.flight.take_returned(returned(message.message_id, token))
        if item is not None:
            self.resolve([item], "returned")

    @rule()
    def lose_connection(self) -> None:
        self.outbox.connection_lost()
        self.channels = [Channel(self.outbox)]

    @rule(seconds=st.floats(0.1, 4))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.resolve(self.outbox.stabilised(self.now), "confirmed")
        self.resolve(self.outbox.expire(self.now), "expired")

    @invariant()
    def everything_is_somewhere(self) -> None:
        inside = [number_of(item) for item in self.outbox if not item.resolved]
        assert sorted([*inside, *self.outcome]) == list(range(len(self.made)))
        assert len(self.outbox) == len(inside)

    def teardown(self) -> None:
        """Whatever happened before, a stable connection resolves every put."""
        self.outbox.connection_lost()
        flight = self.outbox.new_flight()
        while (item := self.outbox.next()) is not None:
            send(flight, item)
        taken = flight.take(len(self.made), multiple=True)
        self.resolve(self.outbox.confirmed(taken, self.now), "confirmed")
        assert sorted(self.outcome) == list(range(len(self.made)))


TestBroker = Broker.TestCase
TestBroker.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_puts_are_resent_in_order_after_a_lost_connection() -> None:
    outbox = Outbox()
    items = [pending(number, put_at=number) for number in range(7)]
    main, aside = outbox.new_flight(), outbox.new_flight()
    for item in items[:5]:
        outbox.add(item)
    for flight, safe_at in ((main, 9.0), (aside, 0.0), (main, 0.0)):
        send(flight, outbox.next(), safe_at)
    assert outbox.confirmed(main.take(1, multiple=False), 0) == []  # its queue is not safe yet
    outbox.set_aside("full", items[5])
    outbox.set_aside_first("full", items[6])
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
def test_a_put_that_waited_is_sent_with_the_remaining_delay(sent_at: float, delay_ms: int) -> None:
    assert rest_ms(pending(delay_ms=60_000, put_at=100.0), sent_at) == delay_ms


def test_the_delay_is_constant_during_a_connection() -> None:
    """Otherwise a put would need other queues once its queues are declared."""
    outbox, item = Outbox(), pending(delay_ms=60_000, put_at=100.0)
    outbox.add(item)
    assert rest_ms(item, 100.0) == rest_ms(item, 120.0) == 60_000
    outbox.connection_lost()
    assert rest_ms(item, 130.0) == 30_000


def test_a_copy_is_sent_with_its_own_delay_not_its_job_s() -> None:
    """The delay of a retried job's put is long over."""
    job = Job("t", "job", "token", 0, 3_600_000, 60_000, b"")
    item = replace(pending(put_at=100.0), message=encode(job), route=LadderEntry("t", 2_000))
    assert rest_ms(item, 100.0) == 2_000
    item.begin_again()
    assert rest_ms(item, 101.5) == 500


def test_a_message_to_a_target_is_resolved_like_any_other() -> None:
    """A response or a buried copy is resent after a lost connection, and resolved once."""
    outbox = Outbox()
    part = Topology("ns").responses("t")
    target = Target("ns.v1.responses", part.queue.name, part)
    item = replace(pending(), route=target)
    outbox.add(item)
    flight = outbox.new_flight()
    send(flight, outbox.next(), 5.0)
    assert outbox.confirmed(flight.take(1, multiple=False), 1.0) == []
    assert item.stabilising
    outbox.connection_lost()
    flight = outbox.new_flight()
    assert (item.route, item.stabilising, item.sent) == (target, False, True)
    send(flight, outbox.next(), 5.0)
    assert outbox.confirmed(flight.take(1, multiple=False), 6.0) == [item]
    assert len(outbox) == 0


def test_a_returned_message_is_found_by_its_id() -> None:
    """A message that had no id carries the generated id of its job by then."""
    flight, item, another = Flight(), pending(1), pending(2)
    for one in (item, another):
        flight.add(one)
    assert flight.take_returned(returned("job-2", "token-1")) is None
    assert flight.take_returned(returned("job-2", None)) is None
    assert flight.take_returned(returned(None, "token-2")) is None
    assert flight.take_returned(returned("job-2", "token-2")) is another
    assert flight.take_returned(returned("job-2", "token-2")) is None
    assert flight.take(2, multiple=True) == [item]


def test_a_discarded_put_is_removed_everywhere() -> None:
    outbox, items = Outbox(), [pending(number) for number in range(4)]
    flight = outbox.new_flight()
    send(flight, items[0])
    send(flight, items[1], 9.0)
    outbox.confirmed(flight.take(2, multiple=False), 0.0)
    outbox.add(items[2])
    outbox.set_aside("key", items[3])
    for item in items:
        outbox.discard(item)
    assert (len(outbox), outbox.next(), outbox.stabilised(99.0)) == (0, None, [])
    assert not outbox.has_aside("key")


def test_a_timeout_error_says_whether_the_put_may_arrive() -> None:
    item = pending()
    error = timeout_error(item, None, None)
    assert type(error) is OutcomeUnknown
    assert not error.sent
    assert "was never sent" in str(error)
    item.stabilising = True
    assert "too new to survive" in str(timeout_error(item, None, None))
    item.stabilising, item.sent = False, True
    blocked = timeout_error(item, "low on disk", None)
    assert isinstance(blocked, BrokerBlocked)
    assert blocked.sent
    assert "low on disk" in str(blocked)


def test_a_returned_message_is_matched_by_its_target() -> None:
    flight = Flight()
    buried, response = pending(1), pending(1)
    buried.route, response.route = Target("buried", "t"), Target("", "gone")
    for each in (buried, response):
        flight.add(each)
    to_gone = returned("job-1", "token-1", exchange="", routing_key="gone")
    assert flight.take_returned(to_gone) is response
    assert flight.take_returned(to_gone) is None


def test_a_returned_message_without_a_token_is_found() -> None:
    flight, item = Flight(), pending(1)
    item.message = Message(b"", {}, "job-1")
    flight.add(item)
    assert flight.take_returned(returned("job-1", "token")) is None
    assert flight.take_returned(returned("job-1", None)) is item


def test_a_returned_copy_is_found_whose_token_is_kept_as_bytes() -> None:
    """The copy of a parked job has its headers byte for byte."""
    flight, item = Flight(), pending(1)
    split = returned("job-1", "token-1").headers
    item.message = replace(item.message, headers=split)
    flight.add(item)
    assert flight.take_returned(returned("job-1", "token-2")) is None
    assert flight.take_returned(returned("job-1", "token-1")) is item


def test_keys_of_puts_set_aside_are_independent() -> None:
    outbox, items = Outbox(), [pending(number) for number in range(4)]
    outbox.set_aside("full", items[0], items[1])
    outbox.set_aside("made", items[2])
    outbox.set_aside_first("full", items[3])
    assert outbox.next() is None
    assert outbox.next_aside("full") is items[3]
    outbox.bring_back("made")
    assert outbox.next() is items[2]
    assert [outbox.next_aside("full") for _ in range(3)] == [items[0], items[1], None]
    assert not outbox.has_aside("full")


def test_ending_a_flight_returns_the_unanswered_puts() -> None:
    outbox, items = Outbox(), [pending(number) for number in range(3)]
    flight = outbox.new_flight()
    for item in items:
        send(flight, item)
    assert flight.take_if(lambda item: item is items[1]) == [items[1]]
    assert flight.take(1, multiple=True) == [items[0]]
    assert outbox.end_flight(flight) == [items[2]]
    assert len(outbox) == 0


def test_what_a_channel_has_in_flight_is_sent_once_if_its_end_follows_that_of_the_connection() -> (
    None
):
    outbox, item = Outbox(), pending()
    outbox.add(item)
    flight = outbox.new_flight()
    send(flight, outbox.next())
    outbox.connection_lost()
    outbox.end_flight(flight)
    assert [outbox.next(), outbox.next()] == [item, None]


def test_a_put_that_expires_leaves_the_others_that_were_set_aside_with_it() -> None:
    outbox, late, other = Outbox(), pending(1, deadline=1), pending(2)
    outbox.set_aside("full", late)
    outbox.set_aside("full", other)
    assert outbox.expire(1.0) == [late]
    assert outbox.has_aside("full")
    outbox.bring_back("full")
    assert [outbox.next(), outbox.next()] == [other, None]


def test_a_put_that_was_resolved_while_it_waited_is_not_sent() -> None:
    outbox, resolved, other = Outbox(), pending(1), pending(2)
    outbox.add(resolved)
    outbox.add(other)
    resolved.resolved = True
    assert [outbox.next(), outbox.next()] == [other, None]
