"""First use: puts through new queues return without waiting, and survive a kill of the broker.

Only the first puts of a namespace wait, once, for its streams. Here the namespace already exists.
The time for a queue to stabilise is set to an hour, so a put that waited for it would not return.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pika
import pytest

from rabbitdelay import JobSpec
from rabbitdelay.core.topology import routes
from rabbitdelay.core.topology.setup import Answers, CountMakers, Flush, Round
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.topology.declarer import Declarer
from rabbitdelay.private_broker import PrivateBroker
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.brokers.receiver import Receiver
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.fronts import Front
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

HOUR_SECONDS = 3600.0
FIRST_DELAY_SECONDS = patience(3)
"""Beyond the kill, so that the jobs are in their hold queues by then."""


@pytest.fixture
def make_client(
    make_client: ClientFactory,
    existing_namespace: None,  # noqa: ARG001 - created before its queue `young` is deleted
    broker_url: str,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> ClientFactory:
    """Clients of a namespace that is not new."""
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().queue_delete(Topology(namespace).young.name)
    monkeypatch.setattr(routes, "STABILISE_SECONDS", HOUR_SECONDS)
    return make_client


def test_puts_through_new_queues_do_not_wait_for_them_to_stabilise(
    make_client: ClientFactory,
) -> None:
    """The first puts create about 18 hold queues; then a new topic and longer delays follow."""
    client, draw = make_client(stabilise_seconds=None), random.Random(1)
    for _ in range(60):
        client.put("t", delay=draw.uniform(0, 10))
    client.put("another", delay=1800)
    client.put("t", delay=86_400)


def test_many_clients_may_start_to_put_at_once(make_client: ClientFactory) -> None:
    """The clients declare the same queues concurrently, and each waits for the others' flush."""
    clients = [make_client(stabilise_seconds=None) for _ in range(4)]
    with ThreadPoolExecutor(len(clients)) as pool:
        delays = [0.5, 1, 2.5]
        puts = [pool.submit(client.put, "t", delay=d) for client in clients for d in delays]
        for put in puts:
            put.result(patience(40))


def test_put_many_through_new_queues_does_not_wait(make_client: ClientFactory) -> None:
    client, draw = make_client(stabilise_seconds=None), random.Random(2)
    specs = [JobSpec(f"t{n % 3}", delay=draw.uniform(0, 10)) for n in range(60)]
    assert client.put_many(specs) == 60


def test_a_client_that_may_not_declare_does_not_wait(make_client: ClientFactory) -> None:
    make_client(stabilise_seconds=None).put("t", delay=1)
    make_client(stabilise_seconds=None, declare=False).put("t", delay=1)


def test_a_retry_does_not_wait_for_its_hold_queue_to_stabilise(
    make_client: ClientFactory, make_worker: WorkerFactory
) -> None:
    """The hold queue for the backoff is new."""
    client, attempts = make_client(stabilise_seconds=None), []
    worker = make_worker(stabilise_seconds=None)

    @worker.handler("t", max_attempts=2, backoff=[0.3])
    def fail_once(_body: object) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("once")

    with working(worker):
        client.put("t")
        wait_until(lambda: len(attempts) == 2, what="the retry runs")


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, object]]:
    """Each command that the broker answered while a client created queues, with the answer."""
    found: list[tuple[object, object]] = []
    go_on = Declarer._go_on

    def record(driver: Declarer[Any], commands: Round, answers: Answers) -> Round:
        found.extend(zip(commands, answers, strict=True))
        return go_on(driver, commands, answers)

    monkeypatch.setattr(Declarer, "_go_on", record)
    return found


def test_a_flush_leaves_no_queue_or_consumer_behind(
    make_client: ClientFactory,
    shared_broker: SharedBroker,
    namespace: str,
    answered: list[tuple[object, object]],
) -> None:
    make_client(stabilise_seconds=None).put("t", delay=1)
    assert any(isinstance(command, Flush) for command, _ in answered)
    wait_until(lambda: flush_queues(shared_broker, namespace) == [])
    assert makers(shared_broker.url, namespace) == 0


def test_a_put_waits_while_another_client_creates_queues(
    make_client: ClientFactory,
    broker_url: str,
    namespace: str,
    answered: list[tuple[object, object]],
) -> None:
    """An existing queue may not be up yet, so it is flushed after the other client is done."""
    make_client().put("t", delay=1)
    making = Topology(namespace).making.name
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(making, durable=True, arguments={"x-queue-type": "classic"})
        tag = channel.basic_consume(making, lambda *_: None)
        put = make_client(stabilise_seconds=None).put_nowait("t", delay=1)
        wait_until(lambda: [n for one, n in answered if isinstance(one, CountMakers)].count(1) > 1)
        assert not put.done()
        channel.basic_cancel(tag)
        put.result(patience(40))


def makers(url: str, namespace: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        counted = connection.channel().queue_declare(Topology(namespace).making.name, passive=True)
        consumers: int = counted.method.consumer_count
    return consumers


def flush_queues(broker: SharedBroker, namespace: str) -> list[str]:
    return broker.management.names("queues", f"{Topology(namespace).prefix}flush.")


@pytest.mark.timeout(180)
def test_puts_that_returned_survive_a_kill_just_after_their_queues_were_created(
    front: Front, breakable_broker: PrivateBroker, namespace: str
) -> None:
    """Every hold queue and topic is used for the first time, the last one just before the kill."""
    broker, topics = breakable_broker, ["a", "b", "c"]
    ids: dict[str, list[str]] = {topic: [] for topic in topics}
    with front.client(broker.url, namespace=namespace, timeout=patience(40)) as client:
        for number, topic in enumerate(topics):
            ids[topic] += [
                client.put(topic, delay=FIRST_DELAY_SECONDS + number + tenth / 10).id
                for tenth in (1, 2)
            ]
    broker.nodes[0].kill()
    broker.start()
    for topic in topics:
        with Receiver(broker.url, Topology(namespace).ready_queue(topic)) as receiver:
            receiver.wait_for(*ids[topic], seconds=60)
