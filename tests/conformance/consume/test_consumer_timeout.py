"""The broker takes a job from a consumer that keeps it beyond the consumer_timeout.

RabbitMQ 3.10 closes the channel; 4.3 cancels the consumer and requeues the job. Both check once a
minute.
"""

import threading

import pytest

from rabbitdelay import Job
from tests.conftest import ClientFactory, PrivateBrokerFactory, WorkerFactory
from tests.support.jobs.connections import dispatcher_of
from tests.support.jobs.popped_jobs import drained
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_MS = 10_000
CHECK_SECONDS = 60 + PATIENCE_MS / 1000


@pytest.fixture
def impatient_url(start_private_broker: PrivateBrokerFactory) -> str:
    return start_private_broker(extra_config={"consumer_timeout": str(PATIENCE_MS)}).url


def test_a_worker_survives_the_brokers_consumer_timeout(
    impatient_url: str, make_client: ClientFactory, make_worker: WorkerFactory
) -> None:
    """The running job continues when it is redelivered, and other jobs run meanwhile."""
    client, worker = make_client(impatient_url), make_worker(impatient_url, concurrency=2)
    seen, go_on = list[str](), threading.Event()

    @worker.handler("t", ttr=3_600)
    def work(job: Job) -> None:
        seen.append(job.id)
        if job.id == "long":
            go_on.wait(patience(240))

    client.put("t", id="long")
    with working(worker):
        wait_until(lambda: seen == ["long"])
        wait_until(lambda: worker.stats().counts.lost == 1, seconds=2 * CHECK_SECONDS)
        client.put("t", id="next")
        wait_until(lambda: "next" in seen, seconds=30)
        leases = dispatcher_of(worker).consumer.settlement.leases
        wait_until(lambda: [lease.job.id for lease in leases.all()] == ["long"], seconds=30)
        go_on.set()
        wait_until(lambda: worker.stats().counts.finished == 2)
    assert seen == ["long", "next"]
    assert drained(client) == []


def test_a_client_survives_the_brokers_consumer_timeout(
    impatient_url: str, make_client: ClientFactory
) -> None:
    """The client learns that the job is lost, and any client can pop it again."""
    client = make_client(impatient_url)
    client.put("t", id="long", ttr=3_600)
    job = client.pop("t", wait=patience(10))
    assert job is not None
    wait_until(lambda: job.time_left == 0, seconds=2 * CHECK_SECONDS)
    again = client.pop("t", wait=patience(30))
    assert again is not None
    assert (again.id, again.attempt) == ("long", 1)
    again.finish()
    assert drained(client) == []
    client.put("t", id="next")
    following = client.pop("t", wait=patience(10))
    assert following is not None
    following.finish()
