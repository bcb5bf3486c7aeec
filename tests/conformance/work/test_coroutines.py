"""Coroutine handlers: on their own event loop in the sync front end, on the user's in aio."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rabbitdelay import Bury, Client, Job, JobSpec, ReservedJob, Retry
from tests.conftest import LookerFactory, WorkerFactory
from tests.support.jobs.connections import cut_worker
from tests.support.jobs.popped_jobs import drained
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until


async def call(method: Callable[..., Any], *arguments: object) -> None:
    """Call a method of a job, and await the result if it is awaitable."""
    result = method(*arguments)
    if inspect.isawaitable(result):
        await result


def test_many_coroutine_handlers_run_concurrently(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker, most, running, many = make_worker(concurrency=50), 0, 0, asyncio.Event()

    @worker.handler("t")
    async def work() -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        if running > 10:
            many.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(many.wait(), patience(10))
        running -= 1

    client.put_many(JobSpec("t", n) for n in range(100))
    worker.run(until_empty=True)
    assert worker.stats().counts.finished == 100
    assert 10 < most <= 50


def test_coroutine_handlers_return_responses_and_raise_outcomes(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    worker, attempts = make_worker(), Counter[str]()

    @worker.handler("t", max_attempts=2, backoff=0)
    async def work(body: str, job: Job) -> str:
        attempts[body] += 1
        await asyncio.sleep(0.01)
        if body == "retry" and job.attempt == 1:
            raise Retry("later", delay=0)
        if body == "bury":
            raise Bury("never")
        if body == "fail":
            raise ValueError("no good")
        return body.upper()

    jobs = {body: client.put("t", body, reply=True) for body in ("fine", "retry", "bury", "fail")}
    with working(worker):
        graves = buried("t").wait_for(2)
        for body in ("fine", "retry"):
            response = client.response(jobs[body], wait=patience(10))
            assert response is not None
            assert response.body == body.upper()
    assert attempts == {"fine": 1, "retry": 2, "bury": 1, "fail": 2}
    reasons = sorted(str(message.headers["rd-reason"]) for message in graves)
    assert reasons == ["attempt 2 of 2 failed", "never"]


def test_coroutine_handlers_may_settle_their_job(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    worker, seen = make_worker(), list[tuple[str, int]]()

    @worker.handler("t", ttr=300)
    async def work(job: ReservedJob) -> None:
        seen.append((job.id, job.attempt))
        await call(job.touch)
        assert job.time_left > 250
        if job.id == "bury":
            await call(job.bury, "by hand")
        elif job.id == "release" and job.attempt == 1:
            await call(job.release, 0.05)
        else:
            await call(job.finish)

    client.put_many(JobSpec("t", id=name) for name in ("finish", "release", "bury"))
    with working(worker):
        (message,) = buried("t").wait_for(1)
        wait_until(lambda: worker.stats().counts.finished == 2)
    assert message.headers["rd-reason"] == "by hand"
    assert sorted(seen) == [("bury", 1), ("finish", 1), ("release", 1), ("release", 2)]
    assert drained(client) == []


def test_coroutine_handlers_are_cancelled_when_their_connection_is_lost(
    client: Client, make_worker: WorkerFactory
) -> None:
    """Their job is redelivered and runs again."""
    worker, seen = make_worker(concurrency=2), list[str]()

    @worker.handler("t", ttr=60)
    async def work() -> None:
        seen.append("began")
        try:
            await asyncio.sleep(30 if seen.count("began") == 1 else 0)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        seen.append("ended")

    client.put("t")
    with working(worker):
        wait_until(lambda: seen == ["began"])
        cut_worker(worker)
        wait_until(lambda: "ended" in seen)
        wait_until(lambda: worker.stats().counts.finished == 1)
    assert Counter(seen) == {"began": 2, "cancelled": 1, "ended": 1}


def test_a_graceful_stop_lets_coroutine_handlers_finish(
    client: Client, make_worker: WorkerFactory
) -> None:
    """A handler that is not done within the grace period is cancelled, and its job goes back."""
    worker, seen = make_worker(concurrency=2, grace=3.0), list[str]()

    @worker.handler("t", ttr=60)
    async def work(body: float, job: Job) -> None:
        seen.append(f"began {job.id}")
        try:
            await asyncio.sleep(body)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            seen.append(f"cancelled {job.id}")
            raise
        seen.append(f"ended {job.id}")

    client.put("t", 0.5, id="short")
    client.put("t", 30, id="long")
    with working(worker):
        wait_until(lambda: len(seen) == 2)
    wait_until(lambda: sorted(seen[2:]) == ["cancelled long", "ended short"])
    job = client.pop("t", wait=patience(5))
    assert job is not None
    assert (job.id, job.attempt) == ("long", 1)
    job.finish()
