"""A silent connection: packets vanish without a reset, and deletes hold all the same.

A worker hands out a job only with a proof, written to the log of deletes at most two seconds ago,
that it knows every delete. So no job runs that was deleted more than two seconds before. All tests
but one shorten these two seconds to half a second.
"""

import time
from collections.abc import Iterator

import pytest

from rabbitdelay import Client, JobSpec, ReservedJob, Worker
from rabbitdelay.core.deletes import freshness
from rabbitdelay.core.deletes.freshness import Freshness
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.errors import CutOff
from tests.conftest import ClientFactory, TopicsFactory, WorkerFactory
from tests.support.brokers.proxy import Proxy
from tests.support.fronts import Front
from tests.support.jobs.connections import log_reader_of
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import handed_out_at, working
from tests.support.patience import patience, wait_until
from tests.support.stalls import Stalls

PROMISED_SECONDS = freshness.FRESH_SECONDS
SHORT_SECONDS = PROMISED_SECONDS / 4
SCHEDULING_SECONDS = 1.0
"""Time from the check of the proof to the hand-out. What the machine needed beyond is measured."""
TTR_SECONDS = 60


@pytest.fixture(autouse=True)
def fresh_seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """The age at which a proof expires, and a client renews it at half of that age."""
    seconds: float = getattr(request, "param", SHORT_SECONDS)
    monkeypatch.setattr(freshness, "FRESH_SECONDS", seconds)
    monkeypatch.setattr(freshness, "REFRESH_SECONDS", seconds / 2)
    return seconds


@pytest.fixture
def proxy(front: Front, broker_url: str) -> Iterator[Proxy]:
    with front.back_end.proxy(broker_url) as proxy:
        yield proxy


class Runs:
    """Records when each job was handed out; each job runs for a tenth of a second."""

    def __init__(self, worker: Worker) -> None:
        self.began: dict[str, float] = {}
        worker.handler("t", ttr=TTR_SECONDS)(self._run)

    def _run(self, job: ReservedJob) -> None:
        self.began[job.id] = handed_out_at(job, TTR_SECONDS)
        time.sleep(0.1)

    def wait_for(self, id: str) -> None:
        wait_until(lambda: id in self.began, seconds=30, what=f"{id} runs")

    def latest(self, ids: list[str]) -> float:
        return max(at for name, at in self.began.items() if name in ids)


def wait_until_stale(log_reader: LogReader) -> None:
    """Wait until the proof of a consumer has expired."""

    def is_stale() -> bool:
        with log_reader.known.locked() as following:
            return following.proof.freshness(time.monotonic()) is Freshness.STALE

    wait_until(is_stale, what="the proof has expired")


@pytest.mark.parametrize(
    ("only", "fresh_seconds"),
    [(None, PROMISED_SECONDS), (0, SHORT_SECONDS), (1, SHORT_SECONDS)],
    ids=["both", "publishing", "consuming"],
    indirect=["fresh_seconds"],
)
def test_no_job_runs_that_was_deleted_two_seconds_before(
    proxy: Proxy,
    client: Client,
    make_worker: WorkerFactory,
    *,
    only: int | None,
    fresh_seconds: float,
) -> None:
    """The worker has prefetched the jobs, and one or both of its connections fall silent."""
    ids = [f"job-{number:03}" for number in range(100)]
    client.put_many(JobSpec("t", id=name) for name in ids)
    worker = make_worker(proxy.url, concurrency=1, prefetch=100)
    runs = Runs(worker)
    with Stalls() as stalls, working(worker):
        runs.wait_for(ids[2])
        proxy.silence(only=only)
        limit_seconds = log_reader_of(worker).known.following.proof.limit_seconds
        client.delete_many(ids)
        deleted_at = time.monotonic()
        # Only time shows that a job does not run.
        time.sleep(fresh_seconds + SCHEDULING_SECONDS + 1)
        proxy.restore()
        client.put("t", id="alive")
        runs.wait_for("alive")
    allowed_seconds = limit_seconds + SCHEDULING_SECONDS + stalls.longest_seconds
    assert runs.latest(ids) - deleted_at < allowed_seconds
    assert len(runs.began) < len(ids), "none was left to be withheld"


def test_an_idle_worker_writes_no_fences_and_a_busy_one_renews_its_proof(
    client: Client, make_worker: WorkerFactory
) -> None:
    """Everything in the log is a fence of this worker, because no job is deleted."""
    client.put("t", id="first")
    worker = make_worker(concurrency=1, prefetch=100)
    runs = Runs(worker)
    with working(worker):
        runs.wait_for("first")
        log_reader = log_reader_of(worker)
        wait_until(
            lambda: not log_reader.known.following.proof.is_awaited, what="its fence is read back"
        )
        while_idle = log_reader.known.following.read_count
        time.sleep(4 * freshness.REFRESH_SECONDS)  # only time shows that no fence is written
        assert log_reader.known.following.read_count == while_idle
        wait_until_stale(log_reader)
        began = time.monotonic()
        client.put_many(JobSpec("t", id=f"job-{number}") for number in range(10))
        runs.wait_for("job-9")
        wait_until(
            lambda: log_reader.known.following.read_count >= while_idle + 2, what="it is renewed"
        )
        fences = log_reader.known.following.read_count - while_idle
        assert fences <= (time.monotonic() - began) / freshness.REFRESH_SECONDS + 2


def test_a_worker_that_was_idle_needs_a_new_proof_to_hand_out_jobs(
    proxy: Proxy, client: Client, make_worker: WorkerFactory
) -> None:
    """Jobs arrive and records of the log do not: no job runs before a fence is read back."""
    client.put("t", id="first")
    worker = make_worker(proxy.url, concurrency=1)
    runs = Runs(worker)
    with working(worker):
        runs.wait_for("first")
        wait_until_stale(log_reader_of(worker))
        proxy.silence(only=0)  # its fences go out on this one
        for number in range(3):
            client.put("t", id=f"dead-{number}", delay=0.5)
        client.delete_many(f"dead-{number}" for number in range(3))
        alive = client.put("t", id="alive", delay=0.5)
        wait_until(lambda: alive.due_ms < time.time() * 1000, what="the jobs are due")
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
    first = pop(popper)
    wait_until_stale(popper._log_reader())
    proxy.silence(only=0)  # its fences go out on this one
    client.put("t", id="second")
    with pytest.raises(CutOff):
        # A pop to which no job was delivered in time returns None.
        wait_until(lambda: popper.pop("t", wait=0.5), what="the pop raises")
    proxy.restore()
    second = pop(popper)
    assert second.id == "second"
    first.finish()
    second.finish()


def test_a_pop_that_waited_for_long_gets_its_job_at_once(
    client: Client,
    make_client: ClientFactory,
    make_topics: TopicsFactory,
    *,
    fresh_seconds: float,
) -> None:
    """Its proof has expired when the job arrives; a new one takes one round trip."""
    make_topics("t")
    popper, delay = make_client(), 2 * fresh_seconds
    assert popper.pop("t") is None
    client.put("t", id="late", delay=delay)
    began = time.monotonic()
    job = pop(popper)
    assert job.redeliveries == 0
    assert time.monotonic() - began < delay + patience(1)
    job.finish()
