"""Handing a job back unchanged."""

import pytest

from rabbitdelay import Client, LeaseLost, ReservedJob
from rabbitdelay.core.topology.topology import DELIVERY_LIMIT
from tests.conftest import LookerFactory, WorkerFactory
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import wait_until


def test_a_job_that_is_handed_back_is_ready_at_once_and_unchanged(client: Client) -> None:
    put = client.put("t", {"order": 42}, ttr=60, id="a", max_attempts=1)
    first = pop(client)
    first.hand_back()
    second = pop(client)
    facts = (second.id, second.token, second.attempt, second.body, second.due)
    assert facts == (put.id, put.token, 1, {"order": 42}, put.due)
    second.finish()
    assert client.pop("t") is None


def test_a_job_that_is_handed_back_cannot_be_settled_any_more(client: Client) -> None:
    client.put("t")
    job = pop(client)
    job.hand_back()
    for settle in (job.finish, job.hand_back, job.release, job.touch):
        with pytest.raises(LeaseLost, match="already handed back"):
            settle()
    assert job.time_left == 0
    pop(client).finish()


def test_a_finished_job_cannot_be_handed_back(client: Client) -> None:
    client.put("t")
    job = pop(client)
    job.finish()
    with pytest.raises(LeaseLost, match="already finished"):
        job.hand_back()
    assert client.pop("t") is None


def test_a_job_is_never_buried_for_being_handed_back(client: Client, buried: LookerFactory) -> None:
    """RabbitMQ 3.10 counts every return, and would bury the job at its delivery limit."""
    put = client.put("t", {"order": 42}, ttr=60)
    for _ in range(2 * DELIVERY_LIMIT):
        job = pop(client)
        assert (job.token, job.attempt, job.due) == (put.token, 1, put.due)
        assert job.redeliveries < DELIVERY_LIMIT / 2
        job.hand_back()
    assert buried("t").messages == []
    pop(client).finish()


def test_a_block_whose_job_was_handed_back_does_not_settle_it(client: Client) -> None:
    client.put("t")
    with pop(client) as job:
        job.hand_back()
    again = pop(client)
    assert again.attempt == 1
    again.finish()


def test_a_handler_can_hand_its_job_back(client: Client, make_worker: WorkerFactory) -> None:
    """The redelivery to the same worker must not count as finished when the handler returns."""
    worker, attempts = make_worker(), list[int]()

    @worker.handler("t")
    def work(job: ReservedJob) -> None:
        attempts.append(job.attempt)
        if len(attempts) < 3:
            job.hand_back()

    client.put("t")
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1)
    assert attempts == [1, 1, 1]


def test_a_handler_that_raises_after_handing_back_does_not_retry_the_job(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker, attempts = make_worker(), list[int]()

    @worker.handler("t")
    def work(job: ReservedJob) -> None:
        attempts.append(job.attempt)
        if len(attempts) == 1:
            job.hand_back()
            raise ValueError

    client.put("t")
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1)
    assert attempts == [1, 1]
