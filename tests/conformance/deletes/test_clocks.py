"""Consumers with wrong clocks: a deleted job does not run again as a retry."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from rabbitdelay import Client, Job, Worker
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.delete_log import log_upkeep
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from tests.conftest import TopicsFactory, WorkerFactory
from tests.support.brokers.messages import publish
from tests.support.jobs.connections import dispatcher_of
from tests.support.jobs.deletes import left_over
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

DAY_SECONDS = 86_400.0
JOBS = 4
SKEWS_DAYS = (2, -2, 400, -400)


def skewed(days: float) -> Callable[[], float]:
    return lambda: time.time() + days * DAY_SECONDS


def has_started_to_forget(worker: Worker) -> bool:
    dispatcher = dispatcher_of(worker)
    return dispatcher.log_reader.known.following.tombstones.floor_ms > 0


@pytest.mark.parametrize("days", SKEWS_DAYS)
def test_jobs_that_fail_and_are_deleted_meanwhile_do_not_run_again(
    client: Client,
    make_worker: WorkerFactory,
    broker_url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    days: float,
) -> None:
    """The jobs are deleted while they wait in a hold queue for their second attempt.

    The worker starts to forget deletes during their first attempts. Before that it knows every
    delete, and if it started earlier, it would read the log again for the first attempt and keep
    all of it.
    """
    worker, runs = make_worker(clock=skewed(days), concurrency=JOBS), Counter[str]()
    may_forget, may_fail = threading.Event(), threading.Event()
    forget_some = KnownDeletes.forget_some
    monkeypatch.setattr(log_upkeep, "SWEEP_SECONDS", 0.2)
    monkeypatch.setattr(
        KnownDeletes,
        "forget_some",
        lambda known, now: forget_some(known, now) if may_forget.is_set() else None,
    )

    @worker.handler("t", backoff=[patience(1.5)])
    def work(job: Job) -> None:
        runs[job.id] += 1
        if job.body == "fails":
            may_fail.wait(patience(40))
            raise ValueError

    jobs = [client.put("t", "fails") for _ in range(JOBS)]
    with working(worker):
        wait_until(lambda: len(runs) == JOBS, what="all jobs run")
        may_forget.set()
        wait_until(lambda: has_started_to_forget(worker))
        may_fail.set()
        wait_until(lambda: worker.stats().counts.released == JOBS, what="all jobs have failed once")
        client.delete(jobs[0])
        client.delete_many(job.id for job in jobs[1:])
        wait_until(lambda: worker.stats().counts.deleted == JOBS, seconds=40, what="all dropped")
        client.put("t", "lives", id="lives")
        wait_until(lambda: runs["lives"] == 1, seconds=40, what="the worker continues")
        wait_until(lambda: left_over(broker_url, client.topology) == {})
    assert runs == Counter([job.id for job in jobs] + ["lives"])


def test_a_message_without_dates_is_deleted_by_its_id(
    client: Client,
    make_worker: WorkerFactory,
    make_topics: TopicsFactory,
    broker_url: str,
    namespace: str,
) -> None:
    """Another program published the message, and the worker generates its id."""
    topics = {f"t{days}": make_worker(clock=skewed(days)) for days in SKEWS_DAYS}
    runs: dict[str, list[str]] = {topic: [] for topic in topics}

    def work(job: Job) -> None:
        runs[job.topic].append(job.id)
        raise ValueError

    make_topics(*topics)
    with ExitStack() as stack:
        for topic, worker in topics.items():
            worker.handler(topic, backoff=[patience(1.5)])(work)
            stack.enter_context(working(worker))
            publish(broker_url, Topology(namespace).ready_queue(topic), (b"no dates", None))
        for topic, worker in topics.items():
            wait_until(lambda: worker.stats().counts.released == 1, what=f"{topic} fails")  # noqa: B023 - called at once
            client.delete(runs[topic][0])
        for topic, worker in topics.items():
            wait_until(lambda: worker.stats().counts.deleted == 1, seconds=40, what=topic)  # noqa: B023
    assert {topic: len(ids) for topic, ids in runs.items()} == dict.fromkeys(topics, 1)


def test_the_lateness_of_a_retry_is_relative_to_the_putters_due_time(
    client: Client, make_worker: WorkerFactory
) -> None:
    """The due time is the putter's plus the delays of the attempts, not the worker's time."""
    topics = {f"t{days}": make_worker(clock=skewed(days)) for days in SKEWS_DAYS}
    dues: dict[str, list[int]] = {topic: [] for topic in topics}

    def work(job: Job) -> None:
        dues[job.topic].append(job.due_ms)
        if job.attempt < 3:
            raise ValueError

    put_dues = {topic: client.put(topic).due_ms for topic in topics}
    with ExitStack() as stack:
        for topic, worker in topics.items():
            worker.handler(topic, backoff=[1])(work)
            stack.enter_context(working(worker))
        wait_until(lambda: all(len(of_topic) == 3 for of_topic in dues.values()), seconds=40)
    now_ms = time.time() * 1000
    for topic, put_due in put_dues.items():
        assert dues[topic][0] == put_due
        assert put_due + 2_000 <= dues[topic][2] <= now_ms
