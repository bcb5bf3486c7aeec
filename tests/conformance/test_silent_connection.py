"""A silent connection: packets vanish without a reset, and deletes hold all the same.

A worker hands out a job only with a proof, written to the log of deletes at most two seconds ago,
that it knows every delete. So no job runs that was deleted more than two seconds before.
"""

import time
from collections.abc import Iterator

import pytest

from rabbitdelay import Client, JobSpec, ReservedJob, Worker
from rabbitdelay.errors import CutOff
from tests.conftest import ClientFactory, TopicsFactory, WorkerFactory
from tests.support.proxy import Proxy
from tests.support.waiting import patience, wait_until
from tests.support.working import log_reader_of, working

PROMISED_SECONDS = 2.0
SCHEDULING_SECONDS = 1.0
"""Time from the check of the proof to the hand-out, on a machine with other load."""
SILENT_SECONDS = 5.0
IDLE_SECONDS = 4.0
TTR_SECONDS = 60


@pytest.fixture
def proxy(broker_url: str) -> Iterator[Proxy]:
    with Proxy(broker_url) as proxy:
        yield proxy


class Runs:
    """Records when each job was handed out; each job runs for a tenth of a second."""

    def __init__(self, worker: Worker) -> None:
        self.began: dict[str, float] = {}
        worker.handler("t", ttr=TTR_SECONDS)(self._run)

    def _run(self, job: ReservedJob) -> None:
        # Taken from the lease, which begins at the hand-out: the handler's thread may start later.
        self.began[job.id] = time.monotonic() + job.time_left - TTR_SECONDS
        time.sleep(0.1)

    def wait_for(self, id: str) -> None:
        wait_until(lambda: id in self.began, seconds=30, what=f"{id} runs")

    def latest(self, ids: list[str]) -> float:
        return max(at for name, at in self.began.items() if name in ids)


@pytest.mark.parametrize("only", [None, 0, 1], ids=["both", "publishing", "consuming"])
def test_no_job_runs_that_was_deleted_two_seconds_before(
    proxy: Proxy, client: Client, make_worker: WorkerFactory, *, only: int | None
) -> None:
    """The worker has prefetched the jobs, and one or both of its connections fall silent."""
    ids = [f"job-{number:03}" for number in range(100)]
    client.put_many(JobSpec("t", id=name) for name in ids)
    worker = make_worker(proxy.url, concurrency=1, prefetch=100)
    runs = Runs(worker)
    with working(worker):
        runs.wait_for(ids[2])
        proxy.silence(only=only)
        client.delete_many(ids)
        deleted_at = time.monotonic()
        time.sleep(SILENT_SECONDS)  # only time shows that a job does not run
        proxy.restore()
        client.put("t", id="alive")
        runs.wait_for("alive")
    assert runs.latest(ids) - deleted_at < PROMISED_SECONDS + SCHEDULING_SECONDS
    assert len(runs.began) < 50


def test_an_idle_worker_writes_no_fences_and_a_busy_one_about_one_a_second(
    client: Client, make_worker: WorkerFactory
) -> None:
    """Everything in the log is a fence of this worker, because no job is deleted."""
    client.put("t", id="first")
    worker = make_worker(concurrency=1, prefetch=100)
    runs = Runs(worker)
    with working(worker):
        runs.wait_for("first")
        log_reader = log_reader_of(worker)
        wait_until(lambda: not log_reader.following.proof.is_awaited, what="its fence is read back")
        while_idle = log_reader.following.read_count
        time.sleep(IDLE_SECONDS)  # only time shows that no fence is written
        assert log_reader.following.read_count == while_idle
        began = time.monotonic()
        client.put_many(JobSpec("t", id=f"job-{number}") for number in range(30))
        runs.wait_for("job-29")
        fences = log_reader.following.read_count - while_idle
        assert 2 <= fences <= time.monotonic() - began + 2


def test_a_worker_that_was_idle_needs_a_new_proof_to_hand_out_jobs(
    proxy: Proxy, client: Client, make_worker: WorkerFactory
) -> None:
    """Jobs arrive and records of the log do not: no job runs before a fence is read back."""
    client.put("t", id="first")
    worker = make_worker(proxy.url, concurrency=1)
    runs = Runs(worker)
    with working(worker):
        runs.wait_for("first")
        time.sleep(PROMISED_SECONDS)  # until the proof has expired
        proxy.silence(only=0)  # its fences go out on this one
        for number in range(3):
            client.put("t", id=f"dead-{number}", delay=0.5)
        client.delete_many(f"dead-{number}" for number in range(3))
        client.put("t", id="alive", delay=0.5)
        wait_until(lambda: client.topics("t")[0].ready == 0, what="the jobs are delivered")
        time.sleep(1.0)  # only time shows that a job does not run
        assert list(runs.began) == ["first"]
        proxy.restore()
        runs.wait_for("alive")
    assert list(runs.began) == ["first", "alive"]


def test_a_pop_without_a_fresh_proof_raises_and_returns_its_job(
    proxy: Proxy, client: Client, make_client: ClientFactory
) -> None:
    """The job goes back when the pop's wait is over, and the error says why."""
    popper = make_client(proxy.url)
    client.put("t", id="first")
    first = popper.pop("t", wait=patience(10))
    assert first is not None
    time.sleep(PROMISED_SECONDS)  # until the proof has expired
    proxy.silence(only=0)  # its fences go out on this one
    client.put("t", id="second")
    with pytest.raises(CutOff):
        popper.pop("t", wait=1)
    proxy.restore()
    second = popper.pop("t", wait=patience(10))
    assert second is not None
    assert second.id == "second"
    first.finish()
    second.finish()


def test_a_pop_that_waited_for_long_gets_its_job_at_once(
    client: Client, make_client: ClientFactory, make_topics: TopicsFactory
) -> None:
    """Its proof has expired when the job arrives; a new one takes one round trip."""
    make_topics("t")
    popper = make_client()
    assert popper.pop("t") is None
    client.put("t", id="late", delay=3)
    began = time.monotonic()
    job = popper.pop("t", wait=patience(10))
    assert job is not None
    assert job.redeliveries == 0
    assert time.monotonic() - began < 3 + patience(1)
    job.finish()
