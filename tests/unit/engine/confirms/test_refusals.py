"""Messages that the broker refuses: closed channels, nacks and returned messages."""

from collections.abc import Iterator

import pytest

from rabbitdelay import Client, InvalidJob, JobRefused, PermissionRefused
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.pending import Pending, Target
from rabbitdelay.engine.futures import Future
from rabbitdelay.testing.model import channel
from tests.support.jobs.connections import publisher_of
from tests.support.memory.stage import Stage

ACCESS_REFUSED, PRECONDITION_FAILED = 403, 406
PASSING = "PRECONDITION_FAILED - queue 'q' in vhost '/' does not have a running replica"
FULL = "full"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


@pytest.fixture
def client(stage: Stage) -> Client:
    """A client that has put to the topics `t` and `full`."""
    client = stage.client()
    for topic in ("t", FULL):
        client.put(topic, id="first")
    stage.settle()
    return client


def ready(stage: Stage, topic: str = "t") -> list[str | None]:
    return stage.messages(stage.topology.ready_queue(topic))[1:]


def submit(client: Client, message: Message, target: Target) -> "Future[None]":
    """Publish a message to another target than the ladder."""
    future: Future[None] = Future()

    def resolve(error: Exception | None) -> None:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    now = publisher_of(client).monotonic()
    label = f"message {message.message_id}"
    publisher_of(client).submit_copy(Pending(message, target, now, now + 30, resolve, label))
    return future


def to_ready(stage: Stage, topic: str = "t") -> Target:
    return Target("", stage.topology.ready_queue(topic))


def poison(message_id: str) -> Message:
    """Return a message on which the broker closes the channel without naming it."""
    return Message(b"", {}, message_id, reply_to="amq.rabbitmq.reply-to")


def close_main(stage: Stage, code: int, text: str) -> None:
    stage.close_channel("publisher", stage.confirm_channels()[0].number, code, text)


# Closed channels


def test_only_the_message_on_which_the_broker_closes_the_channel_fails(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    before = [client.put_nowait("t", id=f"b{n}") for n in range(40)]
    culprit = submit(client, poison("poisoned"), to_ready(stage))
    after = [client.put_nowait("t", id=f"a{n}") for n in range(40)]
    stage.advance(5)
    with pytest.raises(JobRefused, match=r"closes the channel when it reads this message \(406"):
        culprit.result(0)
    assert all(put.done() and put.exception(0) is None for put in before + after)
    assert caplog.text.count("channel closed by the broker") == 3
    found = ready(stage)
    assert max(found.count(one) for one in found) <= 3
    assert "poisoned" not in found


def test_the_suspects_of_two_poisoned_messages_are_told_apart(stage: Stage, client: Client) -> None:
    culprits = [submit(client, poison(name), to_ready(stage)) for name in ("x", "y")]
    put = client.put_nowait("t", id="a")
    stage.advance(5)
    assert [type(one.exception(0)) for one in culprits] == [JobRefused, JobRefused]
    assert put.done()
    assert put.exception(0) is None


def test_a_target_is_not_suspected_any_more_when_the_culprit_is_found(
    stage: Stage, client: Client
) -> None:
    submit(client, poison("x"), to_ready(stage))
    stage.advance(5)
    client.put("t", id="a")
    assert len(stage.confirm_channels()) == 1


def test_a_channel_that_closes_for_a_passing_reason_makes_no_message_suspect(
    stage: Stage, client: Client
) -> None:
    stage.silence_queue(stage.topology.ready_queue("t"))
    put = client.put_nowait("t", id="a")
    for _ in range(4):
        stage.advance(1)
        close_main(stage, PRECONDITION_FAILED, PASSING)
    stage.advance(1)
    stage.restore_queue(stage.topology.ready_queue("t"))
    close_main(stage, PRECONDITION_FAILED, PASSING)
    stage.settle()
    assert put.result(0).id == "a"
    assert len(stage.confirm_channels()) == 1


def test_messages_to_another_exchange_than_the_missing_one_are_not_suspected(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply names the exchange, so the other messages keep their order and their channel."""
    nowhere = Target("nowhere", "k")
    to_broker = stage.connection("publisher").to_broker
    to_broker.silence()
    puts = [client.put_nowait("t", id=name) for name in "ab"]
    lost = submit(client, Message(b"", {}, "lost"), nowhere)
    stage.settle()
    to_broker.restore()
    stage.advance(5)
    assert isinstance(lost.exception(0), JobRefused)
    assert "no exchange 'nowhere'" in str(lost.exception(0))
    assert all(put.done() for put in puts)
    assert caplog.text.count("channel closed") == 3


def test_the_queues_of_a_deleted_exchange_are_declared_again(stage: Stage, client: Client) -> None:
    client.put("t", delay=0.02)
    level = stage.topology.entrance((0, 0, 0, 0, 0, 0, 0, 2))
    stage.on_broker(lambda vhost: vhost.delete_exchange(level))
    put = client.put_nowait("t", id="a", delay=0.02)
    stage.advance(2)
    assert put.done()
    assert put.exception(0) is None
    assert "a" in ready(stage)


def test_a_refused_exchange_fails_its_messages_alone(stage: Stage, client: Client) -> None:
    stage.silence_queue(stage.topology.ready_queue("t"))
    refused = client.put_nowait("t", id="a")
    other = submit(client, Message(b"", {}, "o"), to_ready(stage))
    stage.settle()
    stage.restore_queue(stage.topology.ready_queue("t"))
    exchange = stage.topology.ready_exchange
    text = f"ACCESS_REFUSED - access to exchange '{exchange}' in vhost '/' refused for user 'u'"
    close_main(stage, ACCESS_REFUSED, text)
    stage.settle()
    assert isinstance(refused.exception(0), PermissionRefused)
    assert other.result(0) is None


def test_a_refusal_that_names_no_exchange_fails_every_message_in_flight(
    stage: Stage, client: Client
) -> None:
    stage.silence_queue(stage.topology.ready_queue("t"))
    puts = [client.put_nowait("t") for _ in range(3)]
    stage.settle()
    close_main(stage, ACCESS_REFUSED, "ACCESS_REFUSED - why not")
    stage.settle()
    assert [type(put.exception(0)) for put in puts] == [PermissionRefused] * 3


def test_a_body_above_the_brokers_limit_fails_wherever_it_waits(
    stage: Stage,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A put that waits for its queues would otherwise close the next channel."""
    monkeypatch.setattr(channel, "MOST_BODY_BYTES", 50)
    to_broker = stage.connection("publisher").to_broker
    to_broker.silence()
    small, large = client.put_nowait("t", b"s"), client.put_nowait("t", b"x" * 90)
    waiting = client.put_nowait("new", b"x" * 90)
    stage.settle()
    to_broker.restore()
    stage.settle()
    assert small.exception(0) is None
    for put in (large, waiting):
        assert isinstance(put.exception(0), InvalidJob)
        assert "does not accept a body above 50 bytes" in str(put.exception(0))
    assert caplog.text.count("channel closed by the broker") == 1


def test_channels_that_close_in_quick_succession_are_opened_with_a_wait(
    stage: Stage, client: Client
) -> None:
    close_main(stage, PRECONDITION_FAILED, "first")
    stage.settle()
    assert len(stage.confirm_channels()) == 1, "the first one is replaced at once"
    close_main(stage, PRECONDITION_FAILED, "second")
    stage.settle()
    assert stage.confirm_channels() == []
    put = client.put_nowait("t")
    stage.advance(0.2)
    assert not put.done()
    stage.advance(0.1)
    assert put.done()
    assert len(stage.confirm_channels()) == 1


# Nacks


def test_a_refused_message_is_published_again_until_it_is_accepted(
    stage: Stage, client: Client
) -> None:
    stage.refuse(stage.topology.ready_queue(FULL))
    put = client.put_nowait(FULL, id="a")
    stage.advance(10)
    assert not put.done()
    stage.accept(stage.topology.ready_queue(FULL))
    stage.advance(5)
    assert put.done()
    assert ready(stage, FULL) == ["a"]


def test_a_refused_message_delays_only_those_to_its_target(stage: Stage, client: Client) -> None:
    stage.refuse(stage.topology.ready_queue(FULL))
    refused = client.put_nowait(FULL)
    stage.settle()
    for number in range(20):
        began = stage.seconds
        client.put("t", number)
        assert stage.seconds == began
    assert not refused.done()


def test_every_refused_message_arrives_once(stage: Stage, client: Client) -> None:
    stage.refuse(stage.topology.ready_queue(FULL))
    puts = [client.put_nowait(FULL, id=str(number)) for number in range(40)]
    stage.advance(3)
    stage.accept(stage.topology.ready_queue(FULL))
    stage.advance(10)
    assert all(put.done() for put in puts)
    assert sorted(map(int, ready(stage, FULL))) == list(range(40))  # type: ignore[arg-type]


def test_a_target_that_refuses_for_two_seconds_is_tried_on_another_channel(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """On RabbitMQ 3.10 a channel may nack everything after its queue has lost its leader."""
    stage.refuse(stage.topology.ready_queue(FULL))
    put = client.put_nowait(FULL)
    numbers = set[int]()
    for _ in range(40):
        stage.advance(0.25)
        numbers |= {one.number for one in stage.confirm_channels()}
    assert "refused messages for 2 s; trying another channel" in caplog.text
    assert not put.done()
    stage.accept(stage.topology.ready_queue(FULL))
    stage.advance(5)
    assert put.done()


def test_a_target_that_accepts_messages_again_loses_its_channel(
    stage: Stage, client: Client
) -> None:
    stage.refuse(stage.topology.ready_queue(FULL))
    first = client.put_nowait(FULL)
    stage.advance(0.5)
    assert len(stage.confirm_channels()) == 2
    stage.accept(stage.topology.ready_queue(FULL))
    puts = [client.put_nowait(FULL) for _ in range(100)]
    stage.advance(5)
    assert first.done()
    assert all(put.done() for put in puts)
    assert len(stage.confirm_channels()) == 1


def test_a_target_with_nothing_to_send_loses_its_lane(stage: Stage, client: Client) -> None:
    """Its channel is closed, although the target was never seen to recover."""
    stage.refuse(stage.topology.ready_queue(FULL))
    put = client.put_nowait(FULL, timeout=1)
    other = client.put_nowait("t", timeout=60)
    stage.advance(0.5)
    assert len(stage.confirm_channels()) == 2
    other = client.put_nowait(FULL, timeout=3)
    stage.advance(4)
    assert put.done()
    assert other.done()
    assert len(stage.confirm_channels()) == 1


def test_at_most_sixteen_messages_are_in_flight_to_a_target_in_trouble(
    stage: Stage, client: Client
) -> None:
    """RabbitMQ stops reading a connection with more to one quorum queue that does not answer."""
    stage.refuse(stage.topology.ready_queue(FULL))
    client.put_nowait(FULL, timeout=60)
    stage.advance(0.5)
    stage.accept(stage.topology.ready_queue(FULL))
    stage.connection("publisher").to_client.silence()
    for _ in range(50):
        client.put_nowait(FULL, timeout=60)
    stage.advance(5)
    assert len(ready(stage, FULL)) <= 16


def test_a_nack_of_a_message_that_has_timed_out_is_ignored(stage: Stage, client: Client) -> None:
    stage.refuse(stage.topology.ready_queue(FULL))
    to_client = stage.connection("publisher").to_client
    to_client.silence()
    put = client.put_nowait(FULL, timeout=1)
    stage.advance(1.2)
    assert put.done()
    to_client.restore()
    stage.settle()
    assert publisher_of(client).window.puts == 0


# Returned messages


def remove_routes(stage: Stage) -> None:
    """Remove the ready queue of the topic `t` and the queue for unrouted jobs."""
    stage.delete_queue(stage.topology.ready_queue("t"))
    stage.delete_queue(stage.topology.unrouted)


def test_a_returned_put_fails_and_the_next_one_declares_its_queues(
    stage: Stage, client: Client
) -> None:
    remove_routes(stage)
    put = client.put_nowait("t", id="a")
    stage.settle()
    with pytest.raises(JobRefused, match="the broker cannot route this job"):
        put.result(0)
    assert publisher_of(client).window.puts == 0
    client.put("t", id="b")
    assert stage.messages(stage.topology.ready_queue("t")) == ["b"]


def test_the_confirm_after_a_returned_message_is_not_counted(stage: Stage, client: Client) -> None:
    """Tags of later messages stay assigned to them."""
    remove_routes(stage)
    returned, beside = client.put_nowait("t", id="a"), client.put_nowait(FULL, id="b")
    stage.settle()
    assert isinstance(returned.exception(0), JobRefused)
    assert beside.result(0).id == "b"


def test_a_message_to_a_queue_of_another_program_that_is_missing_fails(
    stage: Stage, client: Client
) -> None:
    gone = submit(client, Message(b"", {"rd-token": "x"}, "r"), Target("", "answers"))
    stage.settle()
    with pytest.raises(JobRefused, match="there is no queue answers"):
        gone.result(0)
    client.put("t")


def test_a_returned_message_that_has_timed_out_is_ignored(stage: Stage, client: Client) -> None:
    remove_routes(stage)
    to_client = stage.connection("publisher").to_client
    to_client.silence()
    put = client.put_nowait("t", timeout=1)
    stage.advance(1.2)
    to_client.restore()
    stage.settle()
    assert put.done()
    assert publisher_of(client).window.puts == 0


def test_a_record_whose_stream_is_missing_is_appended_to_a_new_one(
    stage: Stage, client: Client
) -> None:
    """Shortly after a restart the stream is not up, and RabbitMQ 3.10 confirms what it returned."""
    client.delete("before")
    stage.delete_queue(stage.topology.tombstones)
    client.delete("after")
    assert len(stage.messages(stage.topology.tombstones)) == 1
