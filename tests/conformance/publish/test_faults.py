"""A broker that is killed: jobs whose put returned survive."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pika
import pytest

from rabbitdelay import PutManyFailed
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.models import Job, JobSpec
from rabbitdelay.private_broker import PrivateBroker
from tests.support.brokers.receiver import Receiver
from tests.support.fronts import Front
from tests.support.jobs.connections import cut, publisher_connector
from tests.support.jobs.putters import putting
from tests.support.patience import patience, wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def broker(breakable_broker: PrivateBroker) -> PrivateBroker:
    return breakable_broker


def kill(broker: PrivateBroker) -> None:
    broker.nodes[0].kill()


def ready(broker: PrivateBroker, namespace: str, topic: str = "t") -> Receiver:
    return Receiver(broker.url, Topology(namespace).ready_queue(topic))


def test_the_first_put_of_a_namespace_survives_a_kill_of_the_broker(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """The first put through a new hold queue and the first of a new topic survive too."""
    with front.client(broker.url, namespace=namespace, timeout=patience(20)) as client:
        first = client.put("t", delay=4)
        kill(broker)
        broker.start()
        new_topic = client.put_nowait("another", delay=4)
        new_hold_queue = client.put("t", delay=5)
        kill(broker)
        broker.start()
        with ready(broker, namespace) as receiver, ready(broker, namespace, "another") as other:
            receiver.wait_for(first.id, new_hold_queue.id, seconds=30)
            other.wait_for(new_topic.result(patience(60)).id, seconds=30)
            assert min(m.lateness_ms for m in receiver.messages + other.messages) >= 0


def test_another_clients_put_through_a_new_queue_survives_a_kill_of_the_broker(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """A client that did not create the queue learns that it is new only from the announcement."""
    with (
        front.client(broker.url, namespace=namespace, timeout=patience(20)) as maker,
        front.client(broker.url, namespace=namespace, timeout=patience(20)) as log_reader,
    ):
        made = maker.put_nowait("t", delay=5)
        topology = Topology(namespace)
        wait_until(lambda: exists(broker, topology.ready_queue("t")), seconds=10)
        job = log_reader.put("t", delay=5)
        kill(broker)
        broker.start()
        with ready(broker, namespace) as receiver:
            receiver.wait_for(job.id, made.result(patience(60)).id, seconds=60)


def exists(broker: PrivateBroker, queue: str) -> bool:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True


def test_puts_of_eight_threads_survive_a_kill_of_the_broker(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """Every job whose put returned arrives, none early; the other puts raise OutcomeUnknown."""
    delay = timedelta(seconds=1.5)
    with front.client(broker.url, namespace=namespace, timeout=4) as client:
        client.put("t", delay=delay, timeout=patience(30))
        with putting(client, "t", delay, threads=8) as putters:
            wait_until(lambda: len(putters.returned) > 500, seconds=20)
            kill(broker)
            before = len(putters.returned)
            wait_until(lambda: putters.unknown, seconds=10, what="a put during the outage gives up")
            broker.start()
            wait_until(
                lambda: len(putters.returned) > before + 500, seconds=30, what="puts continue"
            )
    with ready(broker, namespace) as receiver:
        receiver.wait_for(*(job.id for job in putters.returned), seconds=30)
        assert min(message.lateness_ms for message in receiver.messages) >= 0


def test_a_put_during_a_short_outage_returns_later_and_is_on_time(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """The time that the put waited for the broker is subtracted from the delay."""
    with front.client(broker.url, namespace=namespace, timeout=patience(20)) as client:
        client.put("t", delay=0.5)
        kill(broker)
        future = client.put_nowait("t", delay=12, id="during")
        broker.start()
        job = future.result(patience(60))
        with ready(broker, namespace) as receiver:
            receiver.wait_for(client.put("t", delay=0.5).id, seconds=30)
            overdue_ms = max(0, time.time() * 1000 - job.due_ms)
            receiver.wait_for("during", seconds=40)
        (message,) = [m for m in receiver.messages if m.id == "during"]
        assert 0 <= message.lateness_ms < overdue_ms + 4_000, "less than the outage took"
        assert message.headers["rd-token"] == job.token


@pytest.mark.timeout(300)
def test_a_job_that_was_due_while_the_broker_was_down_arrives_after_the_restart(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """The job arrives at once, or when the broker has retried after 5 s."""
    with front.client(broker.url, namespace=namespace) as client:
        job = client.put("t", delay=4)  # returns after 3 s, because the queue is new
        kill(broker)
        wait_until(lambda: time.time() * 1000 > job.due_ms, seconds=5)
        broker.start()
        started_ms = time.time() * 1000
        with ready(broker, namespace) as receiver:
            receiver.wait_for(job.id, seconds=40)
    waited_ms = receiver.messages[0].received_ms - started_ms
    assert waited_ms < patience(10_000), "RabbitMQ's own interval is 180 s"


def test_jobs_parked_during_the_brokers_start_are_sent_on(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """A broker on Mnesia may dead-letter before its bindings exist. The test does this by hand.

    Jobs of a topic that was deleted for good stay parked for an operator.
    """
    topology = Topology(namespace)
    with front.client(broker.url, namespace=namespace, timeout=patience(20)) as client:
        parked = client.put("t", delay=0)
        client.put("gone", delay=0)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for topic in ("t", "gone"):
                method, properties, body = channel.basic_get(topology.ready_queue(topic))
                assert method is not None
                channel.basic_publish(
                    topology.unrouted, method.routing_key or "", body or b"", properties
                )
                channel.basic_ack(method.delivery_tag or 0)
            channel.queue_delete(topology.ready_queue("gone"))
        kill(broker)
        broker.start()
        with ready(broker, namespace) as receiver:
            receiver.wait_for(parked.id, seconds=30)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            wait_until(
                lambda: (
                    channel.queue_declare(topology.unrouted, passive=True).method.message_count == 1
                )
            )


def test_put_many_during_a_restart_of_the_broker_does_not_lose_jobs(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    confirmed: list[Job] = []
    start = threading.Thread(target=broker.start)

    def specs() -> Iterator[JobSpec]:
        for number in range(10_000):
            if number == 4_000:
                kill(broker)
                start.start()
            yield JobSpec("t", number, delay=0.5)

    with front.client(broker.url, namespace=namespace, timeout=patience(20)) as client:
        assert client.put_many(specs(), on_confirmed=confirmed.append) == 10_000
    start.join()
    with ready(broker, namespace) as receiver:
        receiver.wait_for(*(job.id for job in confirmed), seconds=60)


def test_a_failed_put_many_reports_the_confirmed_jobs(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    confirmed: list[Job] = []
    has_killed = threading.Event()

    def specs() -> Iterator[JobSpec]:
        for number in range(10_000):
            if number == 4_000:
                kill(broker)
                has_killed.set()
            yield JobSpec("t", number, delay=0.5, id=str(number))

    with front.client(broker.url, namespace=namespace, timeout=patience(1.5)) as client:
        client.put("t", delay=0.5, timeout=patience(20))
        with pytest.raises(PutManyFailed) as caught:
            client.put_many(specs(), on_confirmed=confirmed.append)
    error = caught.value
    assert has_killed.is_set()
    assert error.confirmed == len(confirmed)
    assert error.confirmed + len(error.unconfirmed) == error.taken
    claimed = {str(n) for n in range(error.taken)} - {str(n) for n in error.unconfirmed}
    assert claimed == {job.id for job in confirmed}
    broker.start()
    with ready(broker, namespace) as receiver:
        receiver.wait_for(*claimed, seconds=60)


def test_puts_survive_lost_connections(front: Front, broker_url: str, namespace: str) -> None:
    """The connection is cut repeatedly, and every job arrives."""
    with front.client(
        broker_url, namespace=namespace, stabilise_seconds=0, timeout=patience(20)
    ) as client:
        client.put("t", delay=0.1)
        futures = []
        for number in range(3_000):
            futures.append(client.put_nowait("t", number, delay=0.1))
            if number % 1_000 == 500:
                wait_until(
                    partial(cut, publisher_connector(client)),
                    seconds=30,
                    what="there is a connection to cut",
                )
        jobs = [future.result(patience(60)) for future in futures]
    with Receiver(broker_url, Topology(namespace).ready_queue("t")) as receiver:
        receiver.wait_for(*(job.id for job in jobs), seconds=30)


def test_a_deleted_topic_does_not_delay_others(
    front: Front, broker_url: str, namespace: str
) -> None:
    """Its jobs are parked in `unrouted` with all headers, and the hold queue continues."""
    topology = Topology(namespace)
    with front.client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
        delay = patience(4)  # longer than all puts and the deletion of the queue take
        callback = "https://x.example"
        gone = [client.put_nowait("gone", n, delay=delay, callback=callback) for n in range(200)]
        kept = [client.put_nowait("kept", n, delay=delay) for n in range(200)]
        gone_ids = {future.result(patience(20)).id for future in gone}
        kept_ids = {future.result(patience(20)).id for future in kept}
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            connection.channel().queue_delete(topology.ready_queue("gone"))
    with (
        Receiver(broker_url, topology.ready_queue("kept")) as receiver,
        Receiver(broker_url, topology.unrouted) as unrouted,
    ):
        receiver.wait_for(*kept_ids)
        unrouted.wait_for(*gone_ids)
        latest_ms = max(message.lateness_ms for message in receiver.messages)
        assert latest_ms < patience(5) * 1000, "a stalled queue takes 180 s"
        assert unrouted.messages[0].headers["rd-callback"] == "https://x.example"
