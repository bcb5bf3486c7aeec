"""A pop gets the jobs that it asks for, waits no longer than it may, and keeps no other job."""

from collections.abc import Iterable
from itertools import chain

import pytest

from rabbitdelay import (
    BrokerUnreachable,
    ClientClosed,
    CutOff,
    LeaseLost,
    NamespaceMissing,
    TopologyError,
)
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.engine.pop import channel_pool
from tests.support.memory.manual_worker import WorkerStage
from tests.support.memory.stepped_client import SteppedClient, SteppedPop

NO_ANSWER_SECONDS = 3.0
"""Longer than a consumer trusts what it knows of deletes."""


def popped(client: SteppedClient, *topics: str) -> SteppedPop:
    """Return a pop that is over."""
    pop = client.pop(topics)
    client.run()
    assert pop.is_over
    return pop


def ids_of(pops: Iterable[SteppedPop]) -> list[str]:
    """Return the ids of all jobs of several pops, sorted."""
    return sorted(chain.from_iterable(pop.ids for pop in pops))


# Ready jobs


def test_a_ready_job_is_popped(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a", "b")
    pop = popped(client, "t")
    pop.finish()
    stage.settle()
    assert (pop.ids, stage.left(), stage.ready()) == (["a"], ["b"], ["b"])


def test_a_pop_of_an_empty_topic_without_a_wait_ends(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a")
    popped(client, "t").finish()
    assert popped(client, "t").ids == []
    assert stage.seconds == 0


def test_the_topics_of_pops_take_turns(stage: WorkerStage, client: SteppedClient) -> None:
    for topic in "tuv":
        stage.put(f"{topic}1", f"{topic}2", topic=topic)
    assert {popped(client, "t", "u", "v").ids[0] for _ in range(3)} == {"t1", "u1", "v1"}


def test_a_pop_of_several_jobs_takes_those_of_all_topics(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a", "b", topic="t")
    stage.put("c", "d", topic="u")
    pop = client.pop(["t", "u"], 10, wait=60)
    client.run()
    client.advance(1)
    assert sorted(pop.ids) == ["a", "b", "c", "d"]


def test_a_pop_of_several_jobs_takes_no_more(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a", "b", "c", "d")
    pop = client.pop("t", 3)
    client.advance(1)
    assert (pop.ids, stage.ready()) == (["a", "b", "c"], ["d"])
    assert stage.returns() == [0]


def test_a_deleted_job_is_skipped(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a", "b")
    stage.delete("a")
    assert popped(client, "t").ids == ["b"]
    assert stage.left() == ["b"]


def test_a_message_that_is_not_a_job_is_skipped(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a")
    popped(client, "t").finish()
    ready = stage.topology.ready_queue("t")
    stage.publish_message(Message(b"{}", {"rd-ttr": "soon"}, message_id="bad"), ready)
    stage.put("b")
    assert popped(client, "t").ids == ["b"]
    stage.settle()
    assert [one.id for one in stage.buried("t")] == ["bad"]


# Waiting


def test_a_waiting_pop_gets_a_job_at_once(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.advance(30)
    stage.put("b")
    client.run()
    assert (pop.ids, stage.seconds) == (["b"], 30)


def test_a_waiting_pop_ends_after_its_wait(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.advance(59)
    assert not pop.is_over
    client.advance(1)
    assert pop.ids == []
    stage.put("b")
    assert stage.ready() == ["b"], "the broker has no consumer of the pop any more"


def test_surplus_jobs_are_returned_once_and_after_all_consumers_are_cancelled(
    stage: WorkerStage, client: SteppedClient
) -> None:
    """Returned earlier, they would be delivered here again, and each delivery counts."""
    for topic in "tuv":
        stage.put("old", topic=topic)
        popped(client, topic).finish()
    pop = client.pop(["t", "u", "v"], wait=60)
    client.run()
    to_client = stage.connection("consumer").to_client
    to_client.silence()
    for topic in "tuv":
        stage.put(f"new {topic}", topic=topic)
    to_client.restore()
    client.run()
    rest = [topic for topic in "tuv" if pop.ids != [f"new {topic}"]]
    assert len(rest) == 2
    assert [stage.returns(topic) for topic in rest] == [[1], [1]]


def test_a_pop_of_several_jobs_waits_a_moment_for_the_rest_of_a_burst(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", 10, wait=60)
    client.advance(1)
    for name in "abc":
        stage.put(name)
        client.advance(0.02)
        assert not pop.is_over
    client.advance(0.03)
    assert pop.ids == ["a", "b", "c"]


def test_a_burst_without_end_ends_a_pop_all_the_same(
    stage: WorkerStage, client: SteppedClient
) -> None:
    """The ttr of the first job is running."""
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", 100, wait=60)
    client.advance(1)
    for number in range(100):
        stage.put(str(number))
        client.advance(0.01)
        if pop.is_over:
            break
    assert 10 < len(pop.ids) < 40


def test_many_pops_wait_for_channels(
    stage: WorkerStage, client: SteppedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_pool, "MAX_CHANNELS", 2)
    stage.put("old")
    popped(client, "t").finish()
    pops = [client.pop("t", wait=60) for _ in range(5)]
    client.run()
    stage.put(*"abcde")
    client.run()
    assert ids_of(pops) == list("abcde")


def test_a_pop_that_ended_while_it_waited_for_a_channel_keeps_none_from_the_next(
    stage: WorkerStage, client: SteppedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_pool, "MAX_CHANNELS", 1)
    stage.put("old")
    popped(client, "t").finish()
    first, short, last = (client.pop("t", wait=wait) for wait in (60, 0.5, 60))
    client.run()
    client.advance(0.5)
    assert (first.is_over, short.ids, last.is_over) == (False, [], False)
    stage.put("a", "b")
    client.run()
    assert (first.ids, last.ids) == (["a"], ["b"])


def test_a_pop_of_a_paused_topic_leaves_its_channel_to_the_next(
    stage: WorkerStage, client: SteppedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_pool, "MAX_CHANNELS", 1)
    for topic in "tu":
        stage.put("old", topic=topic)
        popped(client, topic).finish()
    first, paused, last = (client.pop(topic, wait=60) for topic in "tut")
    client.run()
    stage.pause("u")
    client.run()
    stage.put("a", "b")
    client.run()
    assert (first.ids, last.ids, paused.is_over) == (["a"], ["b"], False)


def test_a_lost_channel_is_replaced_for_a_pop_that_waits_for_one(
    stage: WorkerStage, client: SteppedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pop that the channel served has ended, so nothing else frees a channel."""
    monkeypatch.setattr(channel_pool, "MAX_CHANNELS", 1)
    stage.put("old")
    old = popped(client, "t")
    old.finish()
    first = client.pop("t", wait=60)
    client.run()
    last = client.pop("t", wait=60)
    client.run()
    to_broker = stage.connection("consumer").to_broker
    to_broker.silence()  # so that the channel is not free when it is closed
    first.interrupt(KeyboardInterrupt())
    client.run()
    stage.close_channel("consumer", old.leases[0].channel, 541, "INTERNAL_ERROR")
    to_broker.restore()
    stage.put("a")
    client.run()
    assert last.ids == ["a"]


def test_a_lost_channel_of_the_log_does_not_count_as_one_of_a_pop(
    stage: WorkerStage, client: SteppedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_pool, "MAX_CHANNELS", 1)
    stage.put("old")
    popped(client, "t").finish()
    stage.close_log_channel()
    client.advance(5)
    channels = len(stage.session("consumer").channels)
    pops = [client.pop("t", wait=60) for _ in range(3)]
    client.run()
    assert len(stage.session("consumer").channels) == channels
    assert not any(pop.is_over for pop in pops)


# Topics that do not exist


def test_a_pop_of_a_missing_topic_ends_after_its_wait(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a", topic="another")
    assert popped(client, "t").ids == []
    pop = client.pop("t", wait=10)
    client.advance(10)
    assert pop.ids == []
    assert not stage.has_queue(stage.topology.ready_queue("t"))


def test_a_waiting_pop_gets_the_first_job_of_a_topic(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a", topic="another")
    pop = client.pop("t", wait=60)
    client.advance(10)
    stage.put("b")
    client.advance(1)
    assert pop.ids == ["b"]


def test_a_pop_of_an_existing_and_a_missing_topic_gets_the_jobs_of_both(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a", topic="there")
    popped(client, "there").finish()
    pops = [client.pop(["there", "missing"], wait=60) for _ in range(2)]
    client.advance(1)
    stage.put("b", topic="there")
    stage.put("c", topic="missing")
    client.advance(1)
    assert ids_of(pops) == ["b", "c"]


def test_a_pop_in_a_missing_namespace_says_so(client: SteppedClient) -> None:
    pop = client.pop("t")
    client.run()
    with pytest.raises(NamespaceMissing):
        _ = pop.ids


def test_a_waiting_pop_gets_the_first_job_of_a_namespace(
    stage: WorkerStage, client: SteppedClient
) -> None:
    pop = client.pop("t", wait=60)
    client.advance(5)
    stage.put("a")
    client.advance(2)
    assert pop.ids == ["a"]


def test_a_missing_queue_of_an_existing_topic_is_declared_again(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a")
    buried = stage.topology.buried_queue("t")
    stage.delete_queue(buried)
    assert popped(client, "t").ids == ["a"]
    assert stage.has_queue(buried)


def test_a_deleted_queue_is_declared_again_for_a_waiting_pop(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.run()
    stage.delete_queue(stage.topology.ready_queue("t"))
    client.run()
    stage.put("a")
    client.run()
    assert pop.ids == ["a"]


# The end of the caller, of the connection and of the client


def test_a_pop_abandoned_while_it_asks_returns_the_job(
    stage: WorkerStage, client: SteppedClient
) -> None:
    """The reply to basic.get is on its way."""
    stage.put("old", "a")
    popped(client, "t").finish()
    to_client = stage.connection("consumer").to_client
    to_client.silence()
    pop = client.pop("t")
    client.run()
    pop.interrupt(KeyboardInterrupt())
    to_client.restore()
    client.run()
    with pytest.raises(KeyboardInterrupt):
        _ = pop.ids
    assert stage.ready() == ["a"]


def test_a_pop_abandoned_while_it_waits_takes_no_job(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.advance(1)
    pop.interrupt(KeyboardInterrupt())
    client.run()
    stage.put("a")
    assert (stage.ready(), stage.returns()) == (["a"], [0])


def test_a_pop_abandoned_while_its_job_arrives_returns_it(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.run()
    stage.put("a")  # the pop has it, and its caller has not looked
    pop.interrupt(KeyboardInterrupt())
    client.run()
    assert stage.ready() == ["a"]


def test_a_pop_abandoned_while_it_collects_returns_what_it_has(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", 3, wait=60)
    client.run()
    stage.put("a", "b")
    pop.interrupt(KeyboardInterrupt())
    client.run()
    assert sorted(map(str, stage.ready())) == ["a", "b"]


def test_a_waiting_pop_survives_a_lost_connection(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.run()
    stage.connection("consumer").cut()
    stage.put("a")
    client.advance(5)
    assert pop.ids == ["a"]


def test_a_pop_whose_wait_ends_while_disconnected_raises(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=5)
    client.run()
    stage.links.silence()
    stage.connection("consumer").cut()
    client.advance(1)
    at_once = client.pop("t")
    client.run()
    with pytest.raises(BrokerUnreachable):
        _ = at_once.ids
    client.advance(5)
    with pytest.raises(BrokerUnreachable):
        _ = pop.ids


def test_the_jobs_of_a_pop_that_collects_are_lost_with_its_connection(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", 3, wait=60)
    client.run()
    stage.put("a")
    stage.connection("consumer").cut()
    client.advance(5)
    assert pop.ids == ["a"]
    pop.finish()
    stage.settle()
    assert stage.left() == []


def test_a_waiting_pop_survives_a_lost_channel_once(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    old = popped(client, "t")
    old.finish()
    pop = client.pop("t", wait=60)
    client.run()
    for name in ("first", "second"):
        assert not pop.is_over
        stage.close_channel("consumer", old.leases[0].channel, 541, f"INTERNAL_ERROR - {name}")
        client.run()
    with pytest.raises(TopologyError, match="second"):
        _ = pop.ids


def test_a_job_comes_back_with_its_channel(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a")
    lost = popped(client, "t")
    pop = client.pop("t", wait=60)
    client.run()
    stage.close_channel("consumer", lost.leases[0].channel, 406, "PRECONDITION_FAILED")
    client.run()
    assert pop.ids == ["a"]
    with pytest.raises(LeaseLost):
        lost.finish()


def test_closing_the_client_ends_its_pops_and_returns_its_jobs(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a")
    job = popped(client, "t")
    waiting, collecting = client.pop("u", wait=60), client.pop("t", 5, wait=60)
    client.run()
    stage.put("b")
    client.close()
    client.run()
    for pop in (waiting, collecting):
        with pytest.raises(ClientClosed):
            _ = pop.ids
    with pytest.raises(LeaseLost):
        job.finish()
    assert sorted(map(str, stage.ready())) == ["a", "b"]


def test_a_closed_client_does_not_pop(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("a")
    popped(client, "t").finish()
    client.close()
    stage.advance(1)
    pop = client.pop("t")
    client.run()
    with pytest.raises(ClientClosed):
        _ = pop.ids


# The log of deletes


def test_a_pop_of_a_paused_topic_waits_for_its_end(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a")
    stage.pause()
    assert popped(client, "t").ids == []
    pop = client.pop("t", wait=60)
    client.advance(30)
    assert not pop.is_over
    stage.resume()
    client.run()
    assert pop.ids == ["a"]


def test_a_pop_of_a_paused_and_an_open_topic_serves_the_open_one(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("a", topic="paused")
    stage.put("b", topic="open")
    stage.pause("paused")
    assert popped(client, "paused", "open").ids == ["b"]
    pop = client.pop(["paused", "open"], wait=60)
    client.advance(1)
    stage.resume("paused")
    client.run()
    assert pop.ids == ["a"]


def test_a_topic_paused_during_a_pop_hands_out_nothing(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.run()
    stage.pause()
    client.run()
    stage.put("a")
    client.advance(1)
    assert (pop.is_over, stage.ready()) == (False, ["a"])
    stage.resume()
    client.run()
    assert pop.ids == ["a"]


def test_a_job_that_arrives_with_the_pause_is_returned(
    stage: WorkerStage, client: SteppedClient
) -> None:
    """The job was sent before the broker knew that its topic is paused."""
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.run()
    to_broker = stage.connection("consumer").to_broker
    to_broker.silence()
    stage.pause()
    stage.put("a")
    client.run()
    assert not pop.is_over
    to_broker.restore()
    client.run()
    assert (pop.is_over, stage.ready()) == (False, ["a"])
    stage.resume()
    client.run()
    assert pop.ids == ["a"]


def test_a_pop_waits_until_the_log_of_deletes_is_read_again(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    stage.close_log_channel()
    stage.settle()
    stage.put("a")
    at_once, waiting = client.pop("t"), client.pop("t", wait=60)
    client.run()
    with pytest.raises(CutOff):
        _ = at_once.ids
    client.advance(5)
    assert waiting.ids == ["a"]


def test_a_job_waits_for_the_proof_that_it_was_not_deleted(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    waiting, deleted = client.pop("t", wait=60), client.pop("u", wait=60)
    client.advance(NO_ANSWER_SECONDS)
    publisher = stage.connections_of("publisher")
    for connection in publisher:
        connection.to_broker.silence()
    stage.publish_plain("a")
    client.advance(1)
    assert not waiting.is_over
    stage.links.restore()
    client.run()
    assert (waiting.ids, deleted.is_over) == (["a"], False)


def test_a_channel_whose_job_waited_for_proof_serves_one_pop_at_a_time(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.advance(NO_ANSWER_SECONDS)
    stage.put("a")
    client.run()
    assert pop.ids == ["a"]
    pops = [client.pop("t", wait=60) for _ in range(2)]
    client.run()
    stage.put("b", "c")
    client.run()
    assert ids_of(pops) == ["b", "c"]


def test_a_channel_whose_ready_job_waited_for_proof_serves_one_pop_at_a_time(
    stage: WorkerStage, client: SteppedClient
) -> None:
    """The job was there when the pop began, so that the channel consumes nothing when it ends."""
    stage.put("old")
    popped(client, "t").finish()
    client.advance(NO_ANSWER_SECONDS)
    stage.put("a")
    popped(client, "t").finish()
    pops = [client.pop("t", wait=60) for _ in range(2)]
    client.run()
    stage.put("b", "c")
    client.run()
    assert ids_of(pops) == ["b", "c"]


def test_a_pop_whose_job_stays_unproven_says_so(stage: WorkerStage, client: SteppedClient) -> None:
    stage.put("old")
    popped(client, "t").finish()
    waiting = client.pop("t", wait=10)
    client.advance(NO_ANSWER_SECONDS)
    for connection in stage.connections_of("publisher"):
        connection.to_broker.silence()
    stage.publish_plain("a")
    at_once = client.pop("t")
    client.run()
    client.advance(8)
    with pytest.raises(CutOff):
        _ = waiting.ids
    assert at_once.ids == []
    stage.links.restore()
    client.run()
    assert stage.ready() == ["a"]


def test_a_job_received_for_a_pop_that_is_over_is_returned_when_the_proof_comes(
    stage: WorkerStage, client: SteppedClient
) -> None:
    stage.put("old")
    popped(client, "t").finish()
    pop = client.pop("t", wait=60)
    client.advance(NO_ANSWER_SECONDS)
    for connection in stage.connections_of("publisher"):
        connection.to_broker.silence()
    stage.publish_plain("a")
    pop.interrupt(KeyboardInterrupt())
    client.run()
    stage.links.restore()
    client.run()
    assert stage.ready() == ["a"]
