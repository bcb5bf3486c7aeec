"""After an orderly end, no settled job is delivered again.

A channel of the broker buffers settlements beyond 32 and drops them when it ends. Each test settles
far more than that at once, in an order in which no frame covers many, and ends immediately.
"""

import random
import threading

import pika
import pytest

from rabbitdelay import Client, JobSpec, ReservedJob, Retry
from rabbitdelay.core.topology.topology import Topology
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.jobs.worker_thread import working
from tests.support.patience import wait_until

JOBS = 300
ROUNDS = 3


def test_jobs_finished_by_pop_are_not_redelivered_after_close(
    make_client: ClientFactory, broker_url: str, namespace: str
) -> None:
    for _ in range(ROUNDS):
        client = make_client()
        client.put_many(JobSpec("t", ttr=60) for _ in range(JOBS))
        jobs: list[ReservedJob] = []
        while len(jobs) < JOBS:
            jobs += client.pop("t", max=JOBS - len(jobs), wait=10)
        random.shuffle(jobs)
        for job in jobs:
            job.finish()
        client.close()
        assert _redelivered(broker_url, namespace) == 0


@pytest.mark.parametrize("settled_by", ["finish", "release"])
def test_jobs_settled_by_a_worker_are_not_redelivered_after_it_stops(
    client: Client,
    make_worker: WorkerFactory,
    broker_url: str,
    namespace: str,
    settled_by: str,
) -> None:
    """All handlers end at the same moment, in random order, and the worker is stopped."""
    for _ in range(ROUNDS):
        worker, running, go = make_worker(concurrency=JOBS), list[str](), threading.Event()

        @worker.handler("t", ttr=60)
        def wait(job: ReservedJob, running: list[str] = running, go: object = go) -> None:
            running.append(job.id)
            assert isinstance(go, threading.Event)
            go.wait(60)
            if settled_by == "release":
                raise Retry("later", delay=3600)

        client.put_many(JobSpec("t") for _ in range(JOBS))
        with working(worker):
            wait_until(lambda running=running: len(running) == JOBS, seconds=20)  # type: ignore[misc]
            go.set()
        assert _redelivered(broker_url, namespace) == 0


def test_jobs_left_in_the_queue_are_handed_back_at_the_end(
    client: Client, make_worker: WorkerFactory, broker_url: str, namespace: str
) -> None:
    """The proof of the acks may take a job from the queue, which must return to it."""
    client.put_many(JobSpec("t") for _ in range(2 * JOBS))
    worker = make_worker(prefetch=JOBS)
    worker.handler("t")(lambda _: None)
    worker.run(max_jobs=JOBS)
    assert _redelivered(broker_url, namespace) == JOBS


def _redelivered(broker_url: str, namespace: str) -> int:
    """Return the number of ready jobs after the last consumer is gone."""
    queue = Topology(namespace).ready_queue("t")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()

        def has_consumers() -> bool:
            return bool(channel.queue_declare(queue, passive=True).method.consumer_count)

        wait_until(lambda: not has_consumers(), what="the consumers are gone")
        ready: int = channel.queue_declare(queue, passive=True).method.message_count
    return ready
