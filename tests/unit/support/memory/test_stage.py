"""The stage: what a test holds up does not arrive, and what it lets through does."""

import pytest

from rabbitdelay import OutcomeUnknown
from rabbitdelay.core.topology.objects import Queue
from tests.support.memory.stage import Stage


def test_what_is_let_through_arrives_one_by_one() -> None:
    with Stage() as stage:
        client = stage.client()
        client.put("t", id="first")
        to_broker = stage.connection("publisher").to_broker
        to_client = stage.connection("publisher").to_client
        to_broker.silence()
        put = client.put_nowait("t", id="second")
        stage.settle()
        assert (to_broker.held, stage.messages(stage.topology.ready_queue("t"))) == (1, ["first"])
        to_client.silence()
        to_broker.let_through()
        stage.settle()
        assert stage.messages(stage.topology.ready_queue("t")) == ["first", "second"]
        assert (to_broker.held, to_client.held, put.done()) == (0, 1, False)
        to_client.let_through(7)
        stage.settle()
        assert put.done()
        assert stage.seconds == 0


def test_the_publisher_learns_of_a_closed_channel() -> None:
    with Stage() as stage:
        client = stage.client()
        client.put("t")
        (main,) = stage.confirm_channels()
        stage.close_channel("publisher", main.number, 406, "PRECONDITION_FAILED - why not")
        stage.settle()
        (again,) = stage.confirm_channels()
        assert again is not main


def test_a_queue_refuses_until_it_accepts() -> None:
    with Stage() as stage:
        client, queue = stage.client(), stage.topology.ready_queue("t")
        client.put("t", id="first")
        stage.refuse(queue)
        put = client.put_nowait("t", id="second")
        stage.settle()
        assert not put.done()
        stage.accept(queue)
        stage.advance(1)
        assert put.done()
        assert stage.messages(queue) == ["first", "second"]


def test_a_silent_queue_answers_neither_a_publish_nor_a_declare() -> None:
    with Stage() as stage:
        client, queue = stage.client(timeout=2), stage.topology.ready_queue("t")
        client.put("t")
        stage.silence_queue(queue)
        with pytest.raises(OutcomeUnknown):
            client.put("t")
        with pytest.raises(OutcomeUnknown):
            stage.client(timeout=2).put("t")
        stage.restore_queue(queue)
        stage.client().put("t")


def test_an_alarm_blocks_until_it_ends() -> None:
    with Stage() as stage:
        client = stage.client()
        client.put("t")
        stage.alarm()
        put = client.put_nowait("t")
        stage.advance(20)
        assert not put.done()
        stage.end_alarm()
        stage.settle()
        assert put.done()


def test_queues_are_looked_at_and_deleted_by_hand() -> None:
    with Stage() as stage:
        stage.on_broker(lambda vhost: vhost.declare_queue("q", Queue("q", {}).arguments))
        assert stage.has_queue("q")
        stage.delete_queue("q")
        assert not stage.has_queue("q")
        assert stage.messages("q") == []


def test_an_error_in_the_place_of_the_broker_is_raised_in_the_test() -> None:
    with Stage() as stage, pytest.raises(ZeroDivisionError):
        stage.on_broker(lambda _: 1 // 0)
