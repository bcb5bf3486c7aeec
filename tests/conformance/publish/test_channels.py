"""Channels that the broker closes while their connection stays open."""

import threading
from functools import partial

import pytest

from rabbitdelay import Client, Job, JobRefused, LeaseLost
from rabbitdelay.core.amqp import encode
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.pending import Pending, Target
from rabbitdelay.engine.consume.consumer import Consumer
from tests.conftest import ReceiverFactory, WorkerFactory
from tests.support.jobs.connections import (
    dispatcher_of,
    popper_of,
    publisher_connector,
    publisher_of,
)
from tests.support.jobs.popped_jobs import drained, pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

UNKNOWN_TAG = 1_000_000


def make_broker_close(consumer: Consumer, number: int) -> None:
    """Ack an unknown delivery tag: the broker closes the channel, as by its consumer_timeout."""
    consumer.call(partial(consumer.send, encode.ack(number, UNKNOWN_TAG)))


def test_a_pop_survives_a_closed_channel(client: Client) -> None:
    """Its job is handed out again, and the client that popped it cannot settle it."""
    client.put("t", id="a", ttr=60)
    job = pop(client)
    make_broker_close(popper_of(client).consumer, job._lease.channel)
    wait_until(lambda: job.time_left == 0)
    for act in (job.finish, job.touch, job.release, partial(job.bury, "too late")):
        with pytest.raises(LeaseLost, match="connection"):
            act()
    again = pop(client)
    assert (again.id, again.attempt) == ("a", 1)
    again.finish()
    assert drained(client) == []
    assert popper_of(client).consumer._connector._attempts == 0


def test_a_worker_survives_a_closed_channel(client: Client, make_worker: WorkerFactory) -> None:
    """The worker consumes again, and a running job does not run twice."""
    worker, seen, go_on = make_worker(concurrency=2), list[str](), threading.Event()

    @worker.handler("t", ttr=60)
    def work(job: Job) -> None:
        seen.append(job.id)
        go_on.wait(patience(20))

    client.put("t", id="runs")
    with working(worker):
        wait_until(lambda: seen == ["runs"])
        consumer = dispatcher_of(worker).consumer
        (lease,) = consumer.settlement.leases.all()
        channel = lease.channel
        make_broker_close(consumer, channel)
        wait_until(lambda: lease.is_over or lease.channel != channel)  # before it gets more jobs
        client.put("t", id="next")
        wait_until(lambda: "next" in seen)
        go_on.set()
        wait_until(lambda: worker.stats().running == 0)
        wait_until(lambda: len(consumer.settlement.leases) == 0)
        assert consumer._connector._attempts == 0
    assert seen == ["runs", "next"]
    assert drained(client) == []


def test_puts_survive_a_closed_channel(client: Client, receive: ReceiverFactory) -> None:
    """Unconfirmed puts are republished over the same connection."""
    client.put("t", delay=0.01)
    publisher = publisher_of(client)
    refused: list[Exception | None] = []

    def publish_nowhere() -> None:
        """Publish to an exchange that does not exist: the broker closes the channel."""
        now, target = publisher.monotonic(), Target("nowhere", "")
        message = Message(b"", {}, "nowhere")
        publisher.submit(Pending(message, target, now, now + patience(20), refused.append, "it"))

    futures = []
    for n in range(300):
        futures.append(client.put_nowait("t", n, delay=0.01))
        if n % 100 == 50:
            publish_nowhere()
    ids = [future.result(patience(20)).id for future in futures]
    receive("t").wait_for(*ids)
    wait_until(lambda: len(refused) == 3)
    assert all(isinstance(error, JobRefused) for error in refused)
    assert publisher_connector(client)._attempts == 0
