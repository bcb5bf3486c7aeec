"""Unrouted jobs: they delay no other job, none is lost, and all can be retried."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay import Client, JobSpec, RabbitDelayError, SentJobs, UnroutedJob, UnroutedJobs
from rabbitdelay.core.parked.rescue_schedule import SOON_SECONDS
from rabbitdelay.engine.parked.parked_queue import BATCH
from rabbitdelay.errors import NamespaceMissing, TopologyMissing
from tests.conftest import ClientFactory, ReceiverFactory
from tests.support.patience import patience, wait_until

Retry = Callable[..., SentJobs]
QUORUM = pytest.mark.parametrize("client", ["quorum"], indirect=True)


@pytest.fixture
def client(request: pytest.FixtureRequest, make_client: ClientFactory) -> Client:
    """A client with classic queues, which are stable at once, unless a test is marked QUORUM."""
    return make_client(queue_type=getattr(request, "param", "classic"))


@pytest.fixture
def channel(broker_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        yield connection.channel()


@pytest.fixture
def unrouted(client: Client, make_client: ClientFactory) -> UnroutedJobs:
    """The unrouted jobs, seen by a client that neither declares queues nor rescues jobs."""
    return make_client(queue_type=client.topology.queue_type, declare=False).unrouted()


@pytest.fixture
def retry(client: Client, make_client: ClientFactory) -> Retry:
    """Retry jobs with a client that connects for it."""

    def run(**options: Any) -> SentJobs:  # noqa: ANN401 - passed on
        with make_client(queue_type=client.topology.queue_type) as sender:
            return sender.unrouted().retry(**options)

    return run


@pytest.fixture
def park(
    client: Client, make_client: ClientFactory, channel: BlockingChannel
) -> Callable[..., None]:
    """Put jobs and delete their topic before they are due, with no client left to restore it."""

    def run(topic: str, *ids: str, **options: Any) -> None:  # noqa: ANN401 - passed on
        with make_client(queue_type=client.topology.queue_type) as putter:
            for name in ids:
                putter.put(topic, {"id": name}, id=name, delay=2, **options)
            channel.queue_delete(client.topology.ready_queue(topic))

    return run


def ids(unrouted: UnroutedJobs, **choice: Any) -> set[str | None]:  # noqa: ANN401 - passed on
    return {one.id for one in unrouted.list(**choice)}


@QUORUM
def test_a_deleted_topic_delays_no_other_and_its_jobs_are_sent_on(
    client: Client,
    channel: BlockingChannel,
    unrouted: UnroutedJobs,
    retry: Retry,
    receive: ReceiverFactory,
) -> None:
    """100 jobs, three times the window of the broker's dead-letter worker."""
    gone = [f"gone-{number}" for number in range(100)]
    client.put_many(JobSpec("gone", {"id": name}, id=name, delay=3) for name in gone)
    client.put("alive", id="alive-1", delay=3)
    channel.queue_delete(client.topology.ready_queue("gone"))
    client.close()  # it would declare the queue again
    alive = receive("alive")
    alive.wait_for("alive-1")
    assert alive.messages[0].lateness_ms < patience(5) * 1000, "a stalled queue takes 180 s"
    wait_until(lambda: unrouted.count() == 100, what="all are parked")
    result = retry()
    assert (result.sent, result.stayed) == (100, 0)
    received = receive("gone")
    received.wait_for(*gone)
    for message in received.messages:
        assert json.loads(message.body) == {"id": message.id}
        assert message.lateness_ms >= 0
        assert message.headers["rd-attempt"] == 1
    assert unrouted.count() == 0
    assert max(received.ids.values()) == 1


@QUORUM
def test_listing_often_removes_nothing(unrouted: UnroutedJobs, park: Callable[..., None]) -> None:
    """RabbitMQ 4 drops a message after 20 deliveries by default; this lists more often."""
    park("gone", "a", "b")
    wait_until(lambda: unrouted.count() == 2)
    for _ in range(25):
        assert ids(unrouted) == {"a", "b"}
    assert unrouted.count() == 2


def test_an_unrouted_job_says_which_queue_is_missing(
    client: Client, unrouted: UnroutedJobs, park: Callable[..., None]
) -> None:
    park("gone", "a")
    wait_until(lambda: unrouted.count() == 1)
    (one,) = unrouted.list(limit=10)
    assert (one.topic, one.id) == ("gone", "a")
    assert one.why == "no ready queue"
    assert one.hops_left == ()
    assert one.headers["x-death"][0]["queue"] == f"{client.topology.prefix}hold.2s"


def test_a_job_whose_hold_queue_was_deleted_is_on_time(
    client: Client,
    channel: BlockingChannel,
    unrouted: UnroutedJobs,
    retry: Retry,
    receive: ReceiverFactory,
) -> None:
    client.put("mail", id="a", delay=2.1)
    channel.queue_delete(f"{client.topology.prefix}hold.2s")
    client.put("mail", id="b", delay=2.1)
    client.close()  # it would send the job on
    receiver = receive("mail")
    wait_until(lambda: unrouted.count() == 1, what="b is parked")
    (one,) = unrouted.list(limit=5)
    assert (one.id, one.why) == ("b", "no hold queue 2s")
    assert retry().sent == 1
    (received,) = receiver.wait_for_count(1)
    assert received.id == "b"
    assert 0 <= received.lateness_ms < patience(5) * 1000


def test_a_fast_clock_makes_no_job_early(
    *,
    client: Client,
    channel: BlockingChannel,
    unrouted: UnroutedJobs,
    retry: Retry,
    receive: ReceiverFactory,
    make_client: ClientFactory,
) -> None:
    """By the clock of the client that sends it on, the job was due an hour ago."""
    slow = make_client(clock=lambda: time.time() - 3_600, queue_type="classic")
    slow.put("mail", delay=2)
    channel.queue_delete(f"{client.topology.prefix}hold.2s")
    slow.put("mail", id="b", delay=2)
    slow.close()  # it would send the job on
    wait_until(lambda: unrouted.count() == 1, what="b is parked")
    sent_at = time.time()
    assert retry().sent == 1
    (received,) = receive("mail").wait_for_count(1)
    assert received.id == "b"
    assert received.received_ms / 1000 - sent_at >= 2


def test_only_chosen_jobs_are_sent_on(
    unrouted: UnroutedJobs, retry: Retry, park: Callable[..., None], receive: ReceiverFactory
) -> None:
    park("gone", "a", "b")
    park("lost", "c")
    wait_until(lambda: unrouted.count() == 3)
    assert retry(topic="gone", id="a").sent == 1
    receive("gone").wait_for("a")
    wait_until(lambda: unrouted.count() == 2)
    assert ids(unrouted) == {"b", "c"}


def test_a_message_that_cannot_be_decoded_stays(
    client: Client, channel: BlockingChannel, unrouted: UnroutedJobs, retry: Retry
) -> None:
    client.put("mail")
    client.close()
    channel.basic_publish(client.topology.ready_exchange, "what.is.this", b"?")
    wait_until(lambda: unrouted.count() == 1)
    for _ in range(2):
        result = retry()
        assert (result.sent, result.stayed) == (0, 1)
        assert unrouted.count() == 1


def test_a_message_of_another_program_keeps_its_headers_and_properties(
    client: Client,
    channel: BlockingChannel,
    unrouted: UnroutedJobs,
    retry: Retry,
    receive: ReceiverFactory,
) -> None:
    """Its own headers and properties; those that the broker added are removed."""
    client.put("mail", delay=0.3)
    client.close()
    properties = pika.BasicProperties(
        message_id="theirs",
        correlation_id="c-1",
        reply_to="replies",
        headers={"traceparent": "00-abc", "n": 1},
        content_type="text/csv",
    )
    hold = f"{client.topology.prefix}hold.300ms"
    channel.basic_publish(hold, "0.0.0.0.0.0.3.0.theirs", b"a,b", properties)
    wait_until(lambda: unrouted.count() == 1)
    assert retry().sent == 1
    (received,) = receive("theirs").wait_for_count(1)
    assert (received.body, received.id) == (b"a,b", "theirs")
    assert received.headers == {"traceparent": "00-abc", "n": 1}
    assert received.properties.correlation_id == "c-1"
    assert received.properties.reply_to == "replies"
    assert received.properties.content_type == "text/csv"
    assert received.properties.delivery_mode == 2


def test_a_retry_ends_although_its_jobs_are_parked_again(
    client: Client,
    unrouted: UnroutedJobs,
    retry: Retry,
    park: Callable[..., None],
    channel: BlockingChannel,
) -> None:
    """The topic is deleted again during the retry: each job is tried once."""
    names = [f"j{number}" for number in range(BATCH + 1)]
    park("gone", *names)
    wait_until(lambda: unrouted.count() == len(names))
    tried: list[str | None] = []

    def take_the_topic_away(one: UnroutedJob, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        tried.append(one.id)
        channel.queue_unbind(
            client.topology.ready_queue("gone"),
            client.topology.ready_exchange,
            "*.*.*.*.*.*.*.*.gone",
        )

    retry(on_tried=take_the_topic_away)
    assert sorted(map(str, tried)) == sorted(names)


@QUORUM
def test_a_retry_that_ends_before_its_new_queues_have_stabilised_loses_nothing(
    unrouted: UnroutedJobs,
    park: Callable[..., None],
    make_client: ClientFactory,
    receive: ReceiverFactory,
) -> None:
    """The copy arrives, and the original stays: the job is duplicated, never lost."""
    park("gone", "a")
    wait_until(lambda: unrouted.count() == 1)
    unstable = make_client(stabilise_seconds=600)

    def retry() -> None:
        with suppress(RabbitDelayError):
            unstable.unrouted().retry()

    retrying = threading.Thread(target=retry)
    retrying.start()
    receive("gone").wait_for("a")
    unstable.close(0)
    retrying.join(patience(10))
    assert not retrying.is_alive()
    wait_until(lambda: ids(unrouted) == {"a"})


def test_a_retry_buries_a_job_whose_buried_queue_was_deleted(
    client: Client, channel: BlockingChannel, unrouted: UnroutedJobs, retry: Retry
) -> None:
    client.put("mail", id="a")
    client.close()
    buried = client.topology.buried_queue("mail")
    channel.queue_delete(buried)
    ready = client.topology.ready_queue("mail")

    def refused() -> bool:
        method, _, _ = channel.basic_get(ready)
        if method is not None:
            channel.basic_nack(method.delivery_tag or 0, requeue=False)
        return method is not None

    wait_until(refused)
    wait_until(lambda: unrouted.count() == 1)
    assert retry().sent == 1
    wait_until(lambda: channel.queue_declare(buried, passive=True).method.message_count == 1)


def test_drop_removes_only_chosen_jobs(unrouted: UnroutedJobs, park: Callable[..., None]) -> None:
    park("gone", "a", "b")
    park("lost", "c")
    wait_until(lambda: unrouted.count() == 3)
    assert ids(unrouted, topic="gone") == {"a", "b"}
    assert unrouted.count() == 3
    assert unrouted.drop(topic="gone", limit=1) == 1
    assert unrouted.drop(topic="gone", id="c") == 0
    assert unrouted.drop(where=lambda job: job.topic == "lost") == 1
    assert unrouted.drop() == 1
    assert unrouted.count() == 0


def test_a_missing_namespace_is_an_error(unrouted: UnroutedJobs) -> None:
    with pytest.raises(NamespaceMissing, match="there is no namespace"):
        unrouted.count()


def test_the_error_for_a_missing_unrouted_queue_says_how_to_declare_it(
    client: Client, channel: BlockingChannel, unrouted: UnroutedJobs
) -> None:
    client.put("mail")
    channel.queue_delete(client.topology.unrouted)
    with pytest.raises(TopologyMissing, match="topology apply") as caught:
        unrouted.count()
    assert not isinstance(caught.value, NamespaceMissing)


def test_the_rescue_of_the_same_client_waits_while_jobs_are_sent_on(
    client: Client, unrouted: UnroutedJobs, park: Callable[..., None], make_client: ClientFactory
) -> None:
    """More jobs than one batch, of a topic that the client creates for the first of them."""
    names = [f"j{number}" for number in range(2 * BATCH)]
    park("gone", *names)
    wait_until(lambda: unrouted.count() == len(names))
    sender = make_client(queue_type=client.topology.queue_type)
    tried: list[str | None] = []

    def linger(one: UnroutedJob, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        tried.append(one.id)
        if len(tried) == BATCH:
            time.sleep(2 * SOON_SECONDS)

    assert sender.unrouted().retry(on_tried=linger).sent == len(names)
    assert sorted(map(str, tried)) == sorted(names)
