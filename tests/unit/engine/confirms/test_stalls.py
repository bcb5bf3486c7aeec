"""Targets that do not answer: their messages are published again, and no others wait for them."""

from collections.abc import Iterator

import pytest

from rabbitdelay import Client, OutcomeUnknown
from tests.support.jobs.connections import publisher_of
from tests.support.memory.stage import Stage

STALLED = 8.2
"""Seconds after which a message to a target that does not answer is published again."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


@pytest.fixture
def client(stage: Stage) -> Client:
    """A client that has put to the topics `t` and `slow`."""
    client = stage.client(timeout=120)
    for topic in ("t", "slow"):
        client.put(topic, id="first")
    stage.settle()
    return client


@pytest.fixture
def slow(stage: Stage) -> str:
    """The ready queue of the topic `slow`."""
    return stage.topology.ready_queue("slow")


def test_a_put_that_is_not_confirmed_is_published_again_on_another_channel(
    stage: Stage, client: Client, slow: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On RabbitMQ 3.10 the first channel may wait forever for a leader that is gone."""
    (main,) = stage.confirm_channels()
    stage.silence_queue(slow)
    put = client.put_nowait("slow", id="a")
    stage.advance(7.9)
    stage.restore_queue(slow)
    assert not put.done()
    assert stage.confirm_channels() == [main]
    stage.advance(0.3)
    assert put.done()
    assert stage.messages(slow) == ["first", "a"]
    assert main not in stage.confirm_channels()
    assert "slow; republishing on another channel" in caplog.text


def test_a_target_that_does_not_answer_gets_a_channel_of_its_own(
    stage: Stage, client: Client, slow: str
) -> None:
    stage.silence_queue(slow)
    client.put_nowait("slow")
    stage.advance(STALLED)
    assert len(stage.confirm_channels()) == 2
    main, _ = stage.confirm_channels()
    client.put_nowait("slow")
    stage.advance(60)
    assert stage.confirm_channels()[0] is main, "the channel of all other messages is not replaced"


def test_other_messages_stay_in_flight_on_the_old_channel(
    stage: Stage, client: Client, slow: str
) -> None:
    """Their confirms count, and the channel is closed after the last one."""
    (main,) = stage.confirm_channels()
    stage.silence_queue(slow)
    stalled = client.put_nowait("slow")
    stage.advance(STALLED - 2)
    to_client = stage.connection("publisher").to_client
    to_client.silence()
    other = client.put_nowait("t", id="o")
    stage.advance(2)
    assert main in stage.confirm_channels()
    to_client.restore()
    stage.settle()
    assert other.done()
    assert stage.messages(stage.topology.ready_queue("t")) == ["first", "o"]
    assert main not in stage.confirm_channels()
    assert not stalled.done()


def test_a_confirm_that_comes_late_on_the_old_channel_does_not_count_twice(
    stage: Stage, client: Client, slow: str
) -> None:
    to_client = stage.connection("publisher").to_client
    to_client.silence()
    put = client.put_nowait("slow", id="a")
    stage.advance(STALLED)
    to_client.restore()
    stage.advance(1)
    assert put.done()
    assert publisher_of(client).window.puts == 0
    assert stage.messages(slow) == ["first", "a", "a"], "republished, because the broker was late"


def test_a_stalled_target_delays_only_messages_to_it(
    stage: Stage, client: Client, slow: str
) -> None:
    stage.silence_queue(slow)
    stalled = client.put_nowait("slow")
    for _ in range(60):
        began = stage.seconds
        client.put("t")
        assert stage.seconds == began
        stage.advance(1)
    assert not stalled.done()


def test_the_patience_with_a_target_that_stays_silent_doubles_twice(
    stage: Stage, client: Client, slow: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.silence_queue(slow)
    client.put_nowait("slow")
    stage.advance(8.2 + 16.2 + 32.2 + 32.2)
    seconds = [record.args[0] for record in caplog.records if "no confirm" in record.msg]  # type: ignore[index]
    assert seconds == [8.0, 16.0, 32.0, 32.0]


def test_a_target_that_answers_again_confirms_what_was_published_meanwhile(
    stage: Stage, client: Client, slow: str
) -> None:
    stage.silence_queue(slow)
    puts = [client.put_nowait("slow", id=str(number)) for number in range(40)]
    stage.advance(STALLED)
    stage.restore_queue(slow)
    stage.advance(40)
    assert all(put.done() for put in puts)
    assert stage.messages(slow) == ["first", *map(str, range(40))]
    assert len(stage.confirm_channels()) == 1, "its lane is dissolved"


def test_a_stalled_message_that_times_out_leaves_no_channel_behind(
    stage: Stage, client: Client, slow: str
) -> None:
    stage.silence_queue(slow)
    put = client.put_nowait("slow", timeout=10)
    stage.advance(STALLED + 3)
    assert isinstance(put.exception(0), OutcomeUnknown)
    client.put_nowait("t")
    stage.advance(1)
    assert len(stage.confirm_channels()) == 1


def test_the_time_of_an_alarm_is_not_counted(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    stage.alarm()
    put = client.put_nowait("t")
    stage.advance(30)
    stage.connection("publisher").to_client.silence()
    stage.end_alarm()
    stage.advance(1)
    stage.connection("publisher").to_client.restore()
    stage.advance(1)
    assert put.done()
    assert "no confirm" not in caplog.text


def test_a_silent_log_of_deletes_delays_only_deletes(stage: Stage, client: Client) -> None:
    log = stage.topology.tombstones
    client.delete("before")
    stage.silence_queue(log)
    put = client.put_nowait("t", id="own", delay=60)
    stage.settle()
    assert put.done()
    with pytest.raises(OutcomeUnknown, match="may or may not be recorded"):
        client.delete("during", timeout=12)
    client.put("t")
    stage.restore_queue(log)
    client.delete("after")
    assert len(stage.messages(log)) == 2


def test_a_new_connection_does_not_wait_for_a_silent_log(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Declaring the log is not answered either, so the next attempt leaves the streams out."""
    stage.silence_queue(stage.topology.tombstones)
    stage.connection("publisher").cut()
    put = client.put_nowait("t")
    stage.advance(7)
    assert not put.done()
    stage.advance(2)
    assert put.done()
    assert "declaring again on another channel" in caplog.text
