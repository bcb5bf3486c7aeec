"""Puts over connections that are lost: none is lost with them, and each is resolved once."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from rabbitdelay import BrokerBlocked, Client, ClientClosed, Job, OutcomeUnknown
from tests.support.jobs.connections import publisher_of
from tests.support.memory.stage import ALARM, Stage
from tests.support.memory.stepped_client import SteppedClient

PORT, ANOTHER_PORT = 1, 2
URL = f"amqp://node:{PORT}"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        stage.ports |= {PORT: stage.links, ANOTHER_PORT: stage.links}
        yield stage


@pytest.fixture
def client(stage: Stage) -> Client:
    """A client that has put to the topic `t`."""
    client = stage.client(url=URL)
    client.put("t", id="first")
    stage.on_broker(lambda vhost: vhost.queues[stage.topology.ready_queue("t")].purge())
    return client


def ready(stage: Stage) -> list[str | None]:
    return stage.messages(stage.topology.ready_queue("t"))


def cut_off(stage: Stage) -> None:
    """Cut the connection, and refuse new ones."""
    del stage.ports[PORT]
    stage.connection("publisher").cut()
    stage.settle()


def let_in(stage: Stage) -> None:
    """Accept connections again, and wait for the next attempt."""
    stage.ports[PORT] = stage.links
    while not stage.connections_of("publisher"):
        stage.advance(0.1)
    stage.settle()


def error_of(put: Future[Job]) -> BaseException | None:
    assert put.done()
    return put.exception(0)


def test_a_put_whose_confirm_is_lost_with_the_connection_is_sent_again(
    stage: Stage, client: Client
) -> None:
    connection = stage.connection("publisher")
    connection.to_client.silence()
    put = client.put_nowait("t", id="a")
    stage.settle()
    assert (ready(stage), connection.to_client.held) == (["a"], 1)
    connection.cut()
    stage.advance(1)
    assert put.done()
    assert ready(stage) == ["a", "a"], "it may arrive twice, but it is never lost"


def test_both_copies_of_a_put_that_is_sent_again_have_one_token(
    stage: Stage, client: Client
) -> None:
    stage.connection("publisher").to_client.silence()
    put = client.put_nowait("t", id="a")
    stage.settle()
    stage.connection("publisher").cut()
    stage.advance(1)
    copies = [client.pop("t"), client.pop("t")]
    assert [copy and copy.token for copy in copies] == [put.result(0).token] * 2


def test_a_put_that_never_arrived_is_sent_once_on_the_next_connection(
    stage: Stage, client: Client
) -> None:
    connection = stage.connection("publisher")
    connection.to_broker.silence()
    put = client.put_nowait("t", id="a")
    stage.settle()
    connection.cut()
    stage.advance(1)
    assert put.done()
    assert ready(stage) == ["a"]


def test_puts_keep_their_order_over_a_lost_connection(stage: Stage, client: Client) -> None:
    connection = stage.connection("publisher")
    connection.to_broker.silence()
    puts = [client.put_nowait("t", id="a"), client.put_nowait("t", id="b")]
    stage.settle()
    cut_off(stage)
    puts.append(client.put_nowait("t", id="c"))
    stage.settle()
    let_in(stage)
    assert [put.done() for put in puts] == [True] * 3
    assert ready(stage) == ["a", "b", "c"]


def test_a_put_that_is_set_aside_when_the_connection_is_lost_is_sent_in_its_turn(
    stage: Stage, client: Client
) -> None:
    """The queue of the first put is declared when the connection is lost."""
    connection = stage.connection("publisher")
    connection.to_broker.silence()
    waiting = client.put_nowait("new", id="a")
    stage.settle()
    connection.cut()
    stage.advance(1)
    assert waiting.done()
    assert stage.messages(stage.topology.ready_queue("new")) == ["a"]


def test_a_put_during_an_outage_is_sent_with_the_rest_of_its_delay(
    stage: Stage, client: Client
) -> None:
    cut_off(stage)
    began = stage.seconds
    put = client.put_nowait("t", id="a", delay=60)
    stage.advance(20)
    let_in(stage)
    assert put.done()
    stage.advance(began + 59.9 - stage.seconds)
    assert ready(stage) == []
    stage.advance(0.2)
    assert ready(stage) == ["a"]


def test_the_delay_of_a_put_is_worked_out_once_per_connection(stage: Stage, client: Client) -> None:
    """Otherwise a put whose queues take seconds to declare would then need other queues."""
    to_client = stage.connection("publisher").to_client
    to_client.silence()
    put = client.put_nowait("t", delay=60)
    stage.advance(3)
    to_client.restore()
    stage.settle()
    assert put.done()
    assert stage.has_queue(f"{stage.topology.prefix}hold.1m")
    assert not stage.has_queue(f"{stage.topology.prefix}hold.57s")


def test_a_put_that_is_not_confirmed_in_time_may_have_arrived(stage: Stage, client: Client) -> None:
    stage.connection("publisher").to_client.silence()
    put = client.put_nowait("t", id="a", timeout=2)
    stage.advance(1.9)
    assert not put.done()
    stage.advance(0.3)
    error = error_of(put)
    assert isinstance(error, OutcomeUnknown)
    assert error.sent
    assert "put of a (t) was not confirmed in time: it may or may not have arrived" in str(error)
    assert ready(stage) == ["a"]


def test_the_confirm_of_a_put_that_has_timed_out_is_ignored(stage: Stage) -> None:
    client = stage.client(window=1)
    client.put("t")
    to_client = stage.connection("publisher").to_client
    to_client.silence()
    late = client.put_nowait("t", timeout=1)
    stage.advance(1.2)
    assert isinstance(error_of(late), OutcomeUnknown)
    to_client.restore()
    stage.settle()
    assert publisher_of(client).window.puts == 0
    to_client.silence()
    client.put_nowait("t")
    with pytest.raises(OutcomeUnknown, match="window is full"):
        client.put("t", timeout=1)


def test_a_put_without_a_connection_was_never_sent(stage: Stage, client: Client) -> None:
    cut_off(stage)
    put = client.put_nowait("t", id="a", timeout=1)
    stage.advance(1.2)
    error = error_of(put)
    assert isinstance(error, OutcomeUnknown)
    assert not error.sent
    assert "it was never sent; amqp://" in str(error), "the cause is named"
    let_in(stage)
    assert ready(stage) == []


def test_a_put_sent_before_the_connection_was_lost_may_have_arrived(
    stage: Stage, client: Client
) -> None:
    stage.connection("publisher").to_client.silence()
    put = client.put_nowait("t", timeout=1)
    stage.settle()
    cut_off(stage)
    stage.advance(1.2)
    error = error_of(put)
    assert isinstance(error, OutcomeUnknown)
    assert error.sent


def test_a_put_while_the_broker_blocks_publishers_names_the_alarm(
    stage: Stage, client: Client
) -> None:
    stage.alarm()
    sent = client.put_nowait("t", id="sent", timeout=1)
    stage.settle()
    assert publisher_of(client).blocked == ALARM
    held = client.put_nowait("t", id="held", timeout=1)
    stage.advance(1.2)
    for put, was_sent in ((sent, True), (held, False)):
        error = error_of(put)
        assert isinstance(error, BrokerBlocked)
        assert (error.sent, ALARM in str(error)) == (was_sent, True)


def test_puts_go_on_when_the_alarm_ends(stage: Stage, client: Client) -> None:
    stage.alarm()
    puts = [client.put_nowait("t", id="sent")]
    stage.settle()
    puts.append(client.put_nowait("t", id="held"))
    stage.advance(20)
    assert not any(put.done() for put in puts)
    stage.end_alarm()
    stage.settle()
    assert all(put.done() for put in puts)
    assert ready(stage) == ["sent", "held"]
    assert publisher_of(client).blocked is None


def test_an_alarm_ends_with_the_connection(stage: Stage, client: Client) -> None:
    """The next connection is blocked by its own publish, if the alarm still holds."""
    stage.alarm()
    put = client.put_nowait("t")
    stage.settle()
    stage.connection("publisher").cut()
    stage.end_alarm()
    stage.advance(1)
    assert put.done()
    assert publisher_of(client).blocked is None


def test_a_confirm_from_a_queue_that_is_too_new_counts_later(stage: Stage) -> None:
    client = stage.client(stabilise_seconds=3)
    client.connect()
    put = client.put_nowait("t")
    stage.advance(2.9)
    assert (stage.has_queue(stage.topology.ready_queue("t")), put.done()) == (True, False)
    stage.advance(0.3)
    assert put.done()
    again = client.put_nowait("t")
    stage.settle()
    assert again.done(), "the queue is stable by now"


def test_a_put_that_times_out_in_a_queue_that_is_too_new_says_so(stage: Stage) -> None:
    client = stage.client(stabilise_seconds=3)
    client.connect()
    put = client.put_nowait("t", timeout=1)
    stage.advance(1.2)
    assert "is in a queue that is too new to survive a crash" in str(error_of(put))


def test_a_put_in_a_queue_that_is_too_new_is_sent_again_when_the_connection_is_lost(
    stage: Stage,
) -> None:
    """The broker may have crashed, and the queue with it."""
    client = stage.client(stabilise_seconds=3)
    client.connect()
    put = client.put_nowait("t", id="a")
    stage.advance(1)
    stage.delete_queue(stage.topology.ready_queue("t"))
    stage.connection("publisher").cut()
    stage.advance(3.5)
    assert put.done()
    assert ready(stage) == ["a"]


@pytest.mark.parametrize(("version", "seconds"), [("4.3.0", 0.0), ("5.0.0", 3.0), ("", 3.0)])
def test_new_queues_are_flushed_on_known_brokers_and_left_to_stabilise_on_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, version: str, seconds: float
) -> None:
    """The first put of a namespace waits for its streams, which cannot be flushed."""
    stage.client().put("first")
    stage.advance(10)
    client = stage.client(stabilise_seconds=None)
    connection_type = type(stage.connection("publisher"))
    monkeypatch.setattr(connection_type, "broker_version", version)
    client.connect()
    began = stage.seconds
    client.put("t")
    assert stage.seconds - began == pytest.approx(seconds, abs=0.2)


# The end


CLOSE_SECONDS = 0.5
MARGIN_SECONDS = 1.0
"""Much less than the 5 s in which a broker that answers may end a connection."""


def test_a_client_closes_soon_while_the_broker_does_not_read(stage: Stage, client: Client) -> None:
    stage.alarm()
    put = client.put_nowait("t")
    stage.settle()
    began = stage.seconds
    client.close(CLOSE_SECONDS)
    assert stage.seconds - began < CLOSE_SECONDS + MARGIN_SECONDS
    assert stage.links.connections == []
    assert isinstance(error_of(put), OutcomeUnknown)


def test_a_client_that_is_closed_while_it_connects_leaves_no_connection(stage: Stage) -> None:
    stage.links.silence()
    client = SteppedClient(stage, url=URL)
    pop = client.pop("t", wait=10)
    client.run()
    assert len(stage.links.connections) == 1
    close = client.close()
    while not close.is_over:
        stage.advance(0.1)
        close.go_on()
    client.run()
    assert pop.is_over
    with pytest.raises(ClientClosed):
        _ = pop.result
    stage.links.restore()
    stage.advance(60)
    assert stage.links.connections == []
