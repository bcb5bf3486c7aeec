"""Consumers with wrong clocks: a deleted job does not run again as a retry."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from rabbitdelay import Client, Job, Worker
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.deletes import reader
from tests.conftest import TopicsFactory, WorkerFactory
from tests.support.deleting import left_over
from tests.support.waiting import wait_until
from tests.support.working import publish, working

DAY_SECONDS = 86_400.0
JOBS = 4
SKEWS = pytest.mark.parametrize("days", [2, -2, 400, -400])


def skewed(days: float) -> Callable[[], float]:
    return lambda: time.time() + days * DAY_SECONDS


def has_started_to_forget(worker: Worker) -> bool:
    dispatcher = worker._dispatcher
    assert dispatcher is not None
    return dispatcher._log_reader.following.tombstones.floor_ms > 0


@SKEWS
def test_jobs_that_fail_and_are_deleted_meanwhile_do_not_run_again(
    client: Client,
    make_worker: WorkerFactory,
    broker_url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    days: float,
) -> None:
    """The jobs are deleted while they wait in a hold queue for their second attempt.

    The worker starts to forget deletes in between. Before that it knows every delete, and if it
    started earlier, it would read the log again for the first attempt and keep all of it.
    """
    monkeypatch.setattr(reader, "SWEEP_SECONDS", 4.0)
    worker, runs = make_worker(clock=skewed(days)), Counter[str]()

    @worker.handler("t", backoff=[10])
    def work(job: Job) -> None:
        runs[job.id] += 1
        if job.body == "fails":
            raise ValueError

    jobs = [client.put("t", "fails") for _ in range(JOBS)]
    with working(worker):
        wait_until(lambda: worker.stats().counts.released == JOBS, what="all jobs have failed once")
        wait_until(lambda: has_started_to_forget(worker))
        client.delete(jobs[0])
        client.delete_many(job.id for job in jobs[1:])
        wait_until(lambda: worker.stats().counts.deleted == JOBS, seconds=40, what="all dropped")
        client.put("t", "lives", id="lives")
        wait_until(lambda: runs["lives"] == 1, seconds=40, what="the worker continues")
        wait_until(lambda: left_over(broker_url, client.topology) == {})
    assert runs == Counter([job.id for job in jobs] + ["lives"])


@SKEWS
def test_a_message_without_dates_is_deleted_by_its_id(
    client: Client,
    make_worker: WorkerFactory,
    make_topics: TopicsFactory,
    broker_url: str,
    namespace: str,
    *,
    days: float,
) -> None:
    """Another program published the message, and the worker generates its id."""
    worker, runs = make_worker(clock=skewed(days)), Counter[str]()

    @worker.handler("t", backoff=[3])
    def work(job: Job) -> None:
        runs[job.id] += 1
        raise ValueError

    make_topics("t")
    with working(worker):
        publish(broker_url, Topology(namespace).ready_queue("t"), (b"no dates", None))
        wait_until(lambda: worker.stats().counts.released == 1)
        (name,) = runs
        client.delete(name)
        wait_until(lambda: worker.stats().counts.deleted == 1, seconds=40, what="job dropped")
    assert runs == Counter([name])


@SKEWS
def test_the_lateness_of_a_retry_is_relative_to_the_putters_due_time(
    client: Client, make_worker: WorkerFactory, *, days: float
) -> None:
    """The due time is the putter's plus the delays of the attempts, not the worker's time."""
    worker, dues = make_worker(clock=skewed(days)), list[int]()

    @worker.handler("t", backoff=[1])
    def work(job: Job) -> None:
        dues.append(job.due_ms)
        if job.attempt < 3:
            raise ValueError

    put = client.put("t")
    with working(worker):
        wait_until(lambda: len(dues) == 3, seconds=40)
    now_ms = time.time() * 1000
    assert dues[0] == put.due_ms
    assert put.due_ms + 2_000 <= dues[2] <= now_ms
