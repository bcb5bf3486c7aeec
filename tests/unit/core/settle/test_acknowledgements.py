"""Acknowledgements: never before a message has finished, always eventually, many per frame."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rabbitdelay.core.settle.acknowledgements import MAX_WAIT_SECONDS, WAITING_SHARE, Acks


class Broker:
    """Records its deliveries, and handles acknowledgements as RabbitMQ does."""

    def __init__(self) -> None:
        self.unsettled: list[int] = []
        self.acked: list[int] = []
        self._next_tag = 1

    def deliver(self) -> int:
        tag = self._next_tag
        self._next_tag += 1
        self.unsettled.append(tag)
        return tag

    def nack(self, tag: int) -> None:
        self.unsettled.remove(tag)

    def ack(self, tag: int, *, multiple: bool) -> None:
        assert tag in self.unsettled, f"the broker closes the channel: unknown delivery tag {tag}"
        done = [one for one in self.unsettled if one == tag or (multiple and one < tag)]
        self.unsettled = [one for one in self.unsettled if one not in done]
        self.acked += done


class Channel(RuleBasedStateMachine):
    """A channel on which messages are delivered, finish or are returned in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.broker, self.acks = Broker(), Acks()
        self.running: list[int] = []
        self.finished: set[int] = set()
        self.now = 0.0

    @rule(count=st.integers(1, 20))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            tag = self.broker.deliver()
            self.acks.delivered(tag)
            self.running.append(tag)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(self.running))
        self.running.remove(tag)
        self.finished.add(tag)
        self.acks.finished(tag)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def hand_back(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(self.running))
        self.running.remove(tag)
        self.broker.nack(tag)
        self.acks.settled(tag)

    @rule(seconds=st.sampled_from([0.0, MAX_WAIT_SECONDS / 3, MAX_WAIT_SECONDS]))
    def send(self, seconds: float) -> None:
        self.now += seconds
        self._send()

    @rule()
    def wait_as_long_as_any_acks_wait(self) -> None:
        self._send()
        self.now += MAX_WAIT_SECONDS
        self._send()
        assert set(self.broker.acked) == self.finished
        assert not self.acks.is_any_waiting

    @rule()
    def send_everything(self) -> None:
        self._send(everything=True)
        assert set(self.broker.acked) == self.finished

    @invariant()
    def only_what_has_finished_is_acked_and_only_once(self) -> None:
        assert set(self.broker.acked) <= self.finished
        assert len(set(self.broker.acked)) == len(self.broker.acked)

    def _send(self, *, everything: bool = False) -> None:
        for tag, multiple in self.acks.take(self.now, everything=everything):
            self.broker.ack(tag, multiple=multiple)
        waiting = self.finished - set(self.broker.acked)
        assert len(waiting) * WAITING_SHARE <= len(self.broker.unsettled)
        assert bool(waiting) == self.acks.is_any_waiting
        assert len(self.acks) == len(self.broker.unsettled)


test_what_is_acked_has_finished = Channel.TestCase


@given(st.permutations(range(1, 101)))
def test_messages_finished_between_two_flushes_share_one_frame(order: list[int]) -> None:
    acks = Acks()
    for tag in range(1, 101):
        acks.delivered(tag)
    for tag in order:
        acks.finished(tag)
    assert list(acks.take(0.0)) == [(100, True)]
    assert list(acks.take(1.0)) == []


def test_a_frame_s_tag_is_still_known_to_the_broker() -> None:
    acks = Acks()
    for tag in (1, 2, 3):
        acks.delivered(tag)
    acks.finished(1)
    acks.settled(2)
    assert list(acks.take(0.0)) == [(1, True)]


def test_an_old_job_delays_other_acks_only_briefly() -> None:
    acks = Acks()
    for tag in range(1, 101):
        acks.delivered(tag)
    acks.finished(2)
    assert list(acks.take(0.0)) == []
    assert list(acks.take(MAX_WAIT_SECONDS)) == [(2, False)]


def test_a_small_prefetch_is_never_delayed() -> None:
    acks = Acks()
    for tag in (1, 2, 3):
        acks.delivered(tag)
    acks.finished(2)
    assert list(acks.take(0.0)) == [(2, False)]


def test_a_skipped_tag_is_never_acknowledged() -> None:
    acks = Acks()
    acks.delivered(1)
    acks.delivered(3)
    acks.finished(1)
    acks.finished(3)
    assert list(acks.take(0.0, everything=True)) == [(1, True), (3, False)]


def test_a_message_that_was_returned_is_not_acknowledged() -> None:
    acks = Acks()
    for tag in (1, 2):
        acks.delivered(tag)
    acks.settled(1)
    acks.finished(1)
    assert list(acks.take(0.0, everything=True)) == []
