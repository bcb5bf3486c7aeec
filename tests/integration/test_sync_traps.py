"""The sync front end alone: threads, forks, and traps of pika."""

import gc
import os
import time
import weakref
from concurrent.futures import Future

import pytest

from rabbitdelay import Client, Job, JobSpec, LeaseLost
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.sync.driver.connection import ThreadConnection
from tests.conftest import WorkerFactory
from tests.support.jobs.connections import popper_of, worker_connector
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs.script import Process


def test_a_put_in_a_futures_callback_is_refused(client: Client) -> None:
    outcome: Future[str] = Future()

    def callback(_future: Future[Job]) -> None:
        try:
            client.put("t")
        except RabbitDelayError as error:
            outcome.set_result(str(error))

    client.put_nowait("t").add_done_callback(callback)
    assert "use put_nowait" in outcome.result(patience(10))


LEFT_OPEN = """
import sys
from rabbitdelay import Client
client = Client(sys.argv[1], namespace=sys.argv[2], stabilise_seconds=0)
jobs = []
while len(jobs) < 5:
    jobs += client.pop("t", max=5 - len(jobs), wait=20)
"""


def test_a_process_that_ends_gives_its_jobs_back(
    client: Client, broker_url: str, namespace: str
) -> None:
    client.put_many(JobSpec("t", n, ttr=60) for n in range(5))
    began = time.monotonic()
    with Process(LEFT_OPEN, broker_url, namespace) as process:
        assert process.wait() == 0
    assert time.monotonic() - began < patience(10)
    assert process.errors == []
    assert [pop(client).attempt for _ in range(5)] == [1] * 5


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12: fork, threads
def test_parent_and_forked_child_both_pop(client: Client) -> None:
    """The child opens its own connection, and cannot settle the parent's jobs."""
    client.put_many(JobSpec("t", n) for n in range(3))
    leased = pop(client)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(LeaseLost):
                leased.finish()
            pop(client).finish()
            client.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    leased.finish()
    pop(client).finish()
    client.put("t", id="next")
    assert pop(client).id == "next"


def test_a_client_without_references_is_collected(
    broker_url: str, namespace: str, client: Client
) -> None:
    """A leased job keeps its client alive. After that its jobs go back, and its threads end."""
    dropped = Client(broker_url, namespace=namespace, stabilise_seconds=0)
    dropped.put("t", ttr=60)
    job = pop(dropped)
    ended = popper_of(dropped).consumer._connector.transport.ended
    gone = weakref.ref(dropped)
    gc.disable()
    try:
        del dropped
        assert gone() is not None, "a leased job must keep its client"
        id_of_job = job.id
        job.touch()
        del job
        assert gone() is None, "a reference cycle keeps the client"
        wait_until(ended.done, what="the threads end without the garbage collector")
    finally:
        gc.enable()
    assert pop(client).id == id_of_job


def test_deliveries_count_as_heartbeats(client: Client, make_worker: WorkerFactory) -> None:
    """Otherwise pika would consider a broker dead that sends only jobs."""
    worker = make_worker()
    done: list[object] = []

    @worker.handler("t")
    def collect(body: object) -> None:
        done.append(body)

    with working(worker):
        client.put("t", 0)
        wait_until(lambda: done)
        connection = worker_connector(worker).connection
        assert isinstance(connection, ThreadConnection)
        before = connection.bytes_received
        client.put("t", b"x" * 1_000)
        wait_until(lambda: len(done) == 2)
        assert connection.bytes_received > before + 1_000
