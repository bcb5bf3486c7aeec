"""Retries that cannot be published: the consumer keeps the job, and other jobs continue."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from rabbitdelay import Client, Job, ReservedJob, Retry, TopologyMissing
from rabbitdelay.core.settle import republish_retries
from rabbitdelay.core.settle.republish import read_grave
from tests.conftest import ClientFactory, LookerFactory, WorkerFactory
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

DELAY = 2.0
GOOD = [f"good-{number}" for number in range(20)]
BAD = [f"bad-{number}" for number in range(5)]


class Runs:
    """The attempts that ran, with their times, by job id."""

    def __init__(self) -> None:
        self.times: dict[str, list[tuple[int, float]]] = defaultdict(list)

    def handle(self, job: Job) -> None:
        """Record the attempt, and fail if the job is one of BAD."""
        self.times[job.id].append((job.attempt, time.monotonic()))
        if job.id in BAD:
            raise Retry("not yet", delay=DELAY)

    def attempts(self, name: str) -> list[int]:
        """Return the attempts of a job that ran."""
        return [attempt for attempt, _ in self.times[name]]

    def assert_attempts_are_apart(self, count: int) -> None:
        """Assert that each bad job ran `count` times, each attempt after its delay."""
        for name in BAD:
            assert self.attempts(name) == list(range(1, count + 1))
            times = [at for _, at in self.times[name]]
            assert all(later - earlier >= DELAY for earlier, later in pairwise(times))

    def assert_others_did_not_wait(self) -> None:
        """Assert that half of the good jobs ran before the last attempts of the bad ones."""
        good = sorted(self.times[name][0][1] for name in GOOD)
        assert good[len(GOOD) // 2] < min(self.times[name][-1][1] for name in BAD)


@pytest.fixture
def topic_without_hold_queues(client: Client) -> str:
    """A topic whose jobs never needed a hold queue, so that none exists."""
    for name in (*BAD, *GOOD):
        client.put("t", id=name)
    return "t"


@pytest.mark.parametrize("concurrency", [1, 4])
def test_jobs_without_a_hold_queue_wait_in_the_worker_and_others_run(
    topic_without_hold_queues: str,
    make_worker: WorkerFactory,
    buried: LookerFactory,
    concurrency: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each attempt runs after its delay, the last one buries the job, and the log says why."""
    worker, runs = make_worker(declare=False, concurrency=concurrency), Runs()
    worker.handler(topic_without_hold_queues, max_attempts=3)(runs.handle)
    with caplog.at_level(logging.WARNING), working(worker):
        wait_until(lambda: all(runs.times[name] for name in GOOD))
        wait_until(lambda: all(len(runs.times[name]) == 3 for name in BAD), seconds=30)
        messages = buried(topic_without_hold_queues).wait_for(len(BAD))
    runs.assert_attempts_are_apart(3)
    runs.assert_others_did_not_wait()
    assert {read_grave(message.headers).reason for message in messages} == {"attempt 3 of 3 failed"}
    assert "retry not published, trying again in 1 s" in caplog.text
    assert "missing on the broker, and this client may not declare" in caplog.text


@pytest.fixture
def user(shared_broker: SharedBroker, namespace: str) -> Iterator[Callable[..., str]]:
    """Set the permissions of the test's own user; return its URL."""
    management = shared_broker.management

    def permit(write: str, *, read: str = ".*", configure: str = "") -> str:
        vhost = quote(management.vhost, safe="")
        management.put(f"users/{namespace}", {"password": "x", "tags": ""})
        permissions = {"configure": configure, "write": write, "read": read}
        management.put(f"permissions/{vhost}/{namespace}", permissions)
        parts = urlsplit(shared_broker.url)
        return f"amqp://{namespace}:x@{parts.hostname}:{parts.port}{parts.path}"

    yield permit
    management.remove(f"users/{namespace}")


def test_a_job_whose_retry_is_never_permitted_is_buried_after_its_attempts(
    topic_without_hold_queues: str,
    make_worker: WorkerFactory,
    user: Callable[..., str],
    buried: LookerFactory,
    *,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(republish_retries, "FIRST_SECONDS", 0.1)
    url = user(rf"^{namespace}\.(tombstones|snapshots|v1\.buried).*")
    worker, runs = make_worker(url, declare=False, concurrency=1), Runs()
    worker.handler(topic_without_hold_queues, max_attempts=3)(runs.handle)
    with caplog.at_level(logging.WARNING), working(worker):
        wait_until(lambda: all(runs.times[name] for name in GOOD))
        messages = buried(topic_without_hold_queues).wait_for(len(BAD))
    assert all(runs.attempts(name) == [1] for name in BAD)
    for message in messages:
        grave = read_grave(message.headers)
        assert grave.reason.startswith("attempt 1 failed, and its retry could not be published: ")
        assert "not yet" in (grave.error or "")
    assert "buried (attempt 1 failed, and its retry could not be published" in caplog.text


def test_jobs_whose_hold_queue_may_not_be_declared_wait_in_the_worker(
    topic_without_hold_queues: str,
    make_worker: WorkerFactory,
    user: Callable[..., str],
    buried: LookerFactory,
    *,
    namespace: str,
) -> None:
    """To declare a queue with a dead-letter exchange, RabbitMQ requires read permission on it."""
    url = user(".*", read=rf"^{namespace}\.(?!v1\.hold).*", configure=".*")
    worker, runs = make_worker(url, concurrency=1), Runs()
    worker.handler(topic_without_hold_queues, max_attempts=2)(runs.handle)
    with working(worker):
        wait_until(lambda: all(runs.times[name] for name in GOOD))
        messages = buried(topic_without_hold_queues).wait_for(len(BAD))
    runs.assert_attempts_are_apart(2)
    assert {read_grave(message.headers).reason for message in messages} == {"attempt 2 of 2 failed"}


def test_a_retry_is_published_once_it_is_permitted(
    topic_without_hold_queues: str,
    make_worker: WorkerFactory,
    user: Callable[..., str],
    namespace: str,
) -> None:
    """The permission returns while the worker keeps the jobs, and the next attempt runs."""
    worker, ran = make_worker(user(rf"^{namespace}\.tombstones"), declare=False), list[Any]()

    @worker.handler(topic_without_hold_queues)
    def fail(job: Job) -> None:
        ran.append((job.id, job.attempt))
        if job.id in BAD and job.attempt == 1:
            raise Retry("once more", delay=0)

    with working(worker):
        wait_until(lambda: len(ran) == len(GOOD) + len(BAD))
        user(".*")
        wait_until(lambda: len(ran) == len(GOOD) + 2 * len(BAD), seconds=40)
    assert sorted(ran[-len(BAD) :]) == [(name, 2) for name in BAD]


def test_a_worker_that_stops_returns_the_jobs_it_keeps(
    topic_without_hold_queues: str, make_worker: WorkerFactory, client: Client
) -> None:
    worker, runs = make_worker(declare=False, grace=30), Runs()
    worker.handler(topic_without_hold_queues)(runs.handle)
    with working(worker):
        wait_until(lambda: all(runs.times[name] for name in (*GOOD, *BAD)))
        began = time.monotonic()
    assert time.monotonic() - began < patience(10)
    wait_until(lambda: client.topics(topic_without_hold_queues)[0].ready == len(BAD))


def test_a_release_that_cannot_be_published_raises_the_reason_and_keeps_the_job(
    client: Client, make_client: ClientFactory
) -> None:
    client.put("t", id="job")
    popping = make_client(declare=False)
    first: ReservedJob = pop(popping, "t")
    with pytest.raises(TopologyMissing, match="hold"):
        first.release(delay=DELAY)
    released_at = time.monotonic()
    again = popping.pop("t", wait=patience(20))
    assert again is not None
    assert time.monotonic() - released_at >= DELAY - 0.5
    assert (again.id, again.attempt) == ("job", 2)
    again.finish()
