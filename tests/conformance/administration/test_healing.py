"""Deleted queues are declared again, and jobs parked meanwhile are sent on, but never early."""

import logging
import time
from functools import partial

import pika
import pytest

from rabbitdelay import Client, Job, TopologyMissing
from rabbitdelay.core.parked import rescue_schedule
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.parked.rescuer import Rescuer
from tests.conftest import ClientFactory, ReceiverFactory, WorkerFactory
from tests.support.brokers.streams import delete_queue
from tests.support.jobs.connections import cut, publisher_connector
from tests.support.jobs.deletes import left_over, noting
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

DELAY = 3.0
HEALING_SECONDS = 30.0


def parked(url: str, topology: Topology) -> int:
    """Return the number of jobs in `unrouted`."""
    return left_over(url, topology).get(topology.unrouted, 0)


@pytest.fixture
def ready_queue(namespace: str) -> str:
    return Topology(namespace).ready_queue("t")


@pytest.fixture
def park(make_client: ClientFactory, broker_url: str, ready_queue: str) -> None:
    """Leave a job `parked` in `unrouted`, with its ready queue deleted and no client alive."""
    with make_client() as client:
        client.put("t", id="parked", delay=0.5)
    delete_queue(broker_url, ready_queue)
    wait_until(lambda: parked(broker_url, client.topology) == 1, what="the job is parked")


def test_jobs_run_when_their_ready_queue_is_deleted_under_a_worker_and_a_putter(
    client: Client, make_worker: WorkerFactory, broker_url: str, ready_queue: str
) -> None:
    worker = make_worker()
    seen = noting(worker)
    with working(worker):
        client.put("t", id="before")
        wait_until(lambda: seen == ["before"])
        delete_queue(broker_url, ready_queue)
        ids = [client.put("t", id=str(n), delay=n / 10).id for n in range(20)]
        wait_until(lambda: set(ids) <= set(seen), seconds=HEALING_SECONDS, what="all jobs run")
        wait_until(lambda: left_over(broker_url, client.topology) == {})
    assert len(seen) == 21


def test_a_putter_declares_a_deleted_ready_queue_again_and_warns(
    client: Client,
    receive: ReceiverFactory,
    broker_url: str,
    ready_queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is no worker, so only the putter can notice."""
    caplog.set_level(logging.WARNING)
    client.put("t", id="lost with the queue")
    delete_queue(broker_url, ready_queue)
    client.put("t", id="parked")
    receive("t").wait_for("parked", seconds=HEALING_SECONDS)
    wait_until(lambda: parked(broker_url, client.topology) == 0)
    assert any(ready_queue in one and "deleted" in one for one in caplog.messages)


def test_a_putter_binds_an_unbound_ready_queue_again(
    client: Client, receive: ReceiverFactory, broker_url: str, ready_queue: str
) -> None:
    """The queue exists, so a passive declare does not reveal the missing binding."""
    client.put("t", id="before")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        exchange = client.topology.ready_exchange
        connection.channel().queue_unbind(ready_queue, exchange, "*.*.*.*.*.*.*.*.t")
    client.put("t", id="parked")
    receive("t").wait_for("before", "parked", seconds=HEALING_SECONDS)


@pytest.mark.usefixtures("park")
def test_a_worker_that_starts_runs_parked_jobs(make_worker: WorkerFactory) -> None:
    worker = make_worker()
    seen = noting(worker)
    with working(worker):
        wait_until(lambda: seen == ["parked"], seconds=HEALING_SECONDS)


@pytest.mark.usefixtures("park")
def test_a_new_client_that_puts_sends_parked_jobs_on(
    client: Client, receive: ReceiverFactory
) -> None:
    client.put("t", id="new")
    receive("t").wait_for("parked", "new", seconds=HEALING_SECONDS)


@pytest.mark.usefixtures("park")
def test_a_pop_sends_parked_jobs_on(client: Client) -> None:
    job = client.pop("t", wait=patience(20))
    assert job is not None
    assert job.id == "parked"


@pytest.mark.usefixtures("park")
def test_jobs_of_a_topic_that_no_client_uses_stay_parked(
    client: Client, make_worker: WorkerFactory, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, seen, left_parked = make_worker(), list[str](), list[int]()
    passed = Rescuer._passed

    def record(rescuer: Rescuer, left: int) -> None:
        passed(rescuer, left)
        left_parked.append(left)

    monkeypatch.setattr(Rescuer, "_passed", record)

    @worker.handler("other")
    def work(job: Job) -> None:
        seen.append(job.id)

    with working(worker):
        client.put("other", id="runs", delay=1)
        wait_until(lambda: seen == ["runs"])
        wait_until(lambda: left_parked, what="a client has looked into unrouted")
        assert set(left_parked) == {1}
        assert parked(broker_url, client.topology) == 1


def test_a_putter_declares_a_deleted_hold_queue_again(
    client: Client,
    receive: ReceiverFactory,
    broker_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    client.put("t", id="lost with the queue", delay=DELAY)
    hold_queue = f"{client.topology.prefix}hold.3s"
    delete_queue(broker_url, hold_queue)
    put_at = time.time()
    client.put("t", id="parked", delay=DELAY)
    receiver = receive("t")
    receiver.wait_for("parked", seconds=HEALING_SECONDS)
    assert receiver.messages[0].received_ms / 1000 - put_at >= DELAY
    assert any(hold_queue in one and "deleted" in one for one in caplog.messages)


def test_a_job_whose_next_hold_queue_is_deleted_runs_on_time(
    make_client: ClientFactory,
    make_worker: WorkerFactory,
    broker_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its putter is gone. A worker declares the queue again, and the job waits for the rest."""
    monkeypatch.setattr(rescue_schedule, "IDLE_SECONDS", 3.0)
    with make_client() as putter:
        put_at = time.time()
        putter.put("t", id="parked", delay=1.5)
    worker, ran_at = make_worker(), list[float]()

    @worker.handler("t")
    def work(_job: Job) -> None:
        ran_at.append(time.time())

    delete_queue(broker_url, f"{putter.topology.prefix}hold.500ms")
    with working(worker):
        wait_until(lambda: ran_at, seconds=2 * HEALING_SECONDS, what="the job runs")
    assert ran_at[0] - put_at >= 1.5


def test_a_client_that_may_not_declare_names_the_deleted_queue(
    make_client: ClientFactory, receive: ReceiverFactory, broker_url: str, ready_queue: str
) -> None:
    """Its puts are parked at first. Then they raise until the queue exists again."""
    with make_client() as deployer:
        deployer.put("t")
    locked_down = make_client(declare=False)
    locked_down.put("t", id="before")
    delete_queue(broker_url, ready_queue)

    def fails() -> bool:
        try:
            locked_down.put("t", id="meanwhile")
        except TopologyMissing as error:
            return ready_queue in str(error)
        return False

    wait_until(fails, seconds=HEALING_SECONDS, what="put says which queue is missing")
    assert parked(broker_url, locked_down.topology) > 0
    make_client().put("t", id="by a client that may")
    receiver = receive("t")
    receiver.wait_for("meanwhile", seconds=HEALING_SECONDS)
    locked_down.put("t", id="afterwards")
    receiver.wait_for("afterwards")


def test_a_client_with_a_fast_clock_does_not_send_parked_jobs_on_early(
    make_client: ClientFactory, broker_url: str, receive: ReceiverFactory
) -> None:
    """The hold queue is deleted, and by the clock of the reconnecting client the job is late."""
    with make_client(clock=lambda: time.time() - 3_600) as behind:
        behind.put("t", id="first", delay=DELAY)
        receiver = receive("t")
        receiver.wait_for("first")
        delete_queue(broker_url, f"{behind.topology.prefix}hold.3s")
        put_at = time.time()
        behind.put("t", id="job", delay=DELAY)
    other = make_client()
    other.put("other")
    wait_until(partial(cut, publisher_connector(other)))
    receiver.wait_for("job", seconds=HEALING_SECONDS)
    (received,) = (one for one in receiver.messages if one.id == "job")
    assert received.received_ms / 1000 - put_at >= DELAY
