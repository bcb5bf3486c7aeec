"""Deletes: a deleted job never runs, never comes back, and leaves nothing in any queue."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from rabbitdelay import (
    Bury,
    Client,
    InvalidJob,
    Job,
    JobSpec,
    LeaseLost,
    NoResponse,
    ReservedJob,
    Retry,
    RetryPolicy,
    Worker,
)
from rabbitdelay.engine.delete_log.record_reader import RecordReader
from rabbitdelay.errors import DeleteManyFailed
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.brokers.messages import publish
from tests.support.jobs import deletes
from tests.support.jobs.connections import dispatcher_of, popper_of
from tests.support.jobs.deletes import left_over, noting
from tests.support.jobs.popped_jobs import drained, pops, take
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

PROPAGATION_SECONDS = patience(1.0)
"""A few milliseconds normally; a machine with other load may take longer."""


# What can be deleted, and how it is named


def test_a_deleted_delayed_job_never_runs(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    """The delete names a chosen id, a generated id, the job that put returned, or many of them."""
    client.put("t", delay=0.4, id="chosen")
    generated, whole = (client.put("t", delay=0.4) for _ in range(2))
    many = [client.put("t", delay=0.4) for _ in range(4)]
    client.put("t", delay=0.5, id="lives")
    worker, so_far = make_worker(), list[int]()
    seen = noting(worker)
    client.delete("chosen")
    client.delete(generated.id)
    client.delete(whole)
    mixed: Iterator[str | Job] = (many[n].id if n % 2 else many[n] for n in range(4))
    assert client.delete_many(mixed, on_deleted=so_far.append) == 4
    assert so_far == [4]
    assert client.delete_many([]) == 0
    assert client.delete_many(iter(()), on_deleted=so_far.append) == 0
    with working(worker):
        wait_until(lambda: worker.stats().counts.deleted == 7 and seen)
        wait_until(lambda: len(dispatcher_of(worker).settlement.leases) == 0)
    assert (seen, worker.stats().counts.finished) == (["lives"], 1)
    assert left_over(broker_url, client.topology) == {}


def test_a_deleted_job_is_never_popped(client: Client, broker_url: str) -> None:
    """This holds for pops of one job, of several, and for a pop that is already waiting."""
    jobs = [client.put("t", id=f"dead-{n}") for n in range(6)]
    client.put("t", id="lives")
    client.delete_many(jobs[:3])
    client.delete_many(job.id for job in jobs[3:])
    (job,) = client.pop("t", max=20, wait=patience(10))
    assert job.id == "lives"
    job.finish()
    client.delete(client.put("t", delay=0.2))
    client.put("t", delay=0.3, id="later")
    assert pops(client, wait=1) == ["later"]
    counts = popper_of(client).consumer.settlement.stats.counts_at(time.monotonic())
    assert (counts.deleted, counts.finished) == (7, 2)
    assert len(popper_of(client).consumer.settlement.leases) == 0
    assert left_over(broker_url, client.topology) == {}


@pytest.mark.usefixtures("existing_namespace")
def test_a_client_does_not_pop_its_deleted_jobs_before_it_reads_its_own_record(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes by job and by id, a replaced job and a purged topic, while the log's reader lags."""
    assert client.pop("t") is None  # the client has read the log, and its proof is fresh
    with monkeypatch.context() as patch:
        patch.setattr(RecordReader, "delivered", lambda _self, _delivery: None)
        client.delete(client.put("t"))
        client.put("t", id="by id")
        client.delete("by id")
        client.put("t", "old", id="replaced")
        client.replace("t", "new", id="replaced", delay=3600)
        client.put("purged")
        client.purge("purged")
        assert drained(client, "t", "purged") == []
    client.put("t", id="lives")
    client.delete("replaced")
    assert client.pop("t", wait=patience(20)) is not None


def test_a_pop_that_finds_only_deleted_jobs_returns_none(client: Client) -> None:
    """The pop returns after its wait, neither early nor late."""
    client.delete_many([client.put("t") for _ in range(20)])
    assert client.pop("t") is None
    client.delete_many([client.put("t", delay=0.1) for _ in range(3)])
    began = time.monotonic()
    assert client.pop("t", wait=0.5) is None
    assert 0.5 <= time.monotonic() - began < patience(5)


@pytest.mark.usefixtures("existing_namespace")
def test_the_records_of_delete_many_are_packed_and_reported(client: Client) -> None:
    so_far = list[int]()
    assert client.delete_many((f"x{n}" for n in range(2_500)), on_deleted=so_far.append) == 2_500
    assert so_far == [1_000, 2_000, 2_500]
    wait_until(lambda: client.tombstones().count == 2_500)


@pytest.mark.parametrize("wrong", ["", "x" * 201, "a\ud800", 17, None, b"bytes", ["list"]])
def test_an_invalid_id_is_refused(client: Client, wrong: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidJob, match="id"):
        client.delete(wrong)
    with pytest.raises(DeleteManyFailed, match="id") as caught:
        client.delete_many(["fine", wrong])
    assert caught.value.deleted == 0


def test_ids_may_have_any_characters(client: Client) -> None:
    ids = ["ö" * 100, "a b\n", '"quoted\\"', "x" * 200, "\u2028", "😀"]
    client.put_many(JobSpec("t", id=name) for name in ids)
    client.delete_many(ids)
    assert drained(client) == []
    assert client.tombstones().count == len(ids)


# The state of the job when it is deleted


def test_a_ready_job_without_a_consumer_is_deleted(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    """A worker that starts later reads the log first."""
    client.put_many(JobSpec("t", id=f"dead-{n}") for n in range(50))
    client.put("t", id="lives")
    client.delete_many(f"dead-{n}" for n in range(50))
    worker = make_worker()
    seen = noting(worker)
    worker.run(until_empty=True)
    assert (seen, worker.stats().counts.deleted) == (["lives"], 50)
    assert left_over(broker_url, client.topology) == {}


def test_a_prefetched_job_of_a_busy_worker_is_deleted(
    client: Client, make_worker: WorkerFactory
) -> None:
    """The worker checks the job when it hands it out."""
    worker, seen, go_on = make_worker(concurrency=1, prefetch=10), [], threading.Event()

    @worker.handler("t")
    def work(job: Job) -> None:
        seen.append(job.id)
        go_on.wait(patience(10))

    jobs = [client.put("t", id=name) for name in ("first", "by id", "whole", "last")]
    with working(worker):
        wait_until(lambda: len(dispatcher_of(worker).settlement.leases) == 4)
        client.delete("by id")
        client.delete(jobs[2])
        client.delete("first")
        wait_until(lambda: is_known(worker, "first"))
        go_on.set()
        wait_until(lambda: worker.stats().counts.finished == 2)
        assert worker.stats().counts.deleted == 2
    assert seen == ["first", "last"]


def is_known(worker: Worker, id: str) -> bool:
    """Return whether a worker knows that a job in its hands is deleted."""
    settlement = dispatcher_of(worker).settlement
    leases = [lease for lease in settlement.leases.all() if lease.job.id == id]
    return any(settlement.is_deleted(lease) for lease in leases)


@pytest.mark.parametrize("kind", ["thread", "async", "process"])
@pytest.mark.parametrize("by", ["id", "job"])
def test_a_job_is_deleted_while_its_handler_runs(
    client: Client, make_worker: WorkerFactory, kind: str, by: str, broker_url: str
) -> None:
    """`job.deleted` becomes true in the handler; finish and response work as usual."""
    worker = make_worker(pool="process" if kind == "process" else "thread", concurrency=1)
    is_async = kind == "async"
    handler = deletes.return_when_deleted_async if is_async else deletes.return_when_deleted
    worker.handler("t")(handler)
    job = client.put("t", reply=True)
    with working(worker):
        wait_until(lambda: worker.stats().running == 1)
        client.delete(job if by == "job" else job.id)
        deleted = time.monotonic()
        response = client.response(job, wait=patience(20))
        assert response is not None
        assert response.body - deleted < PROPAGATION_SECONDS
        wait_until(lambda: worker.stats().counts.finished == 1)
        assert worker.stats().counts.deleted == 0
    assert left_over(broker_url, client.topology) == {}


def test_a_popped_job_is_deleted(
    client: Client, make_client: ClientFactory, broker_url: str
) -> None:
    """A delete by another client is seen; a job that is not deleted is not affected."""
    other = make_client()
    client.put("t", id="lives")
    put = client.put("t", id="dies")
    dies, lives = take(client, 2)
    assert not lives.deleted
    assert not dies.deleted
    other.delete(put)
    deleted = time.monotonic()
    assert deletes.return_when_deleted(dies) - deleted < PROPAGATION_SECONDS
    assert not lives.deleted
    dies.touch()
    dies.finish()
    assert dies.deleted
    lives.finish()
    assert left_over(broker_url, client.topology) == {}


def test_a_job_that_waits_for_its_retry_is_deleted(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    worker, seen = make_worker(), list[tuple[str, int]]()

    @worker.handler("t", backoff=0.5, backoff_max=0.5, max_attempts=5)
    def fail(job: Job) -> None:
        seen.append((job.id, job.attempt))
        raise ValueError

    by_id, whole = client.put("t", id="by id"), client.put("t", id="whole")
    with working(worker):
        wait_until(lambda: worker.stats().counts.released == 2)
        client.delete(by_id.id)
        client.delete(whole)
        wait_until(lambda: worker.stats().counts.deleted == 2)
    assert sorted(seen) == [("by id", 1), ("whole", 1)]
    assert left_over(broker_url, client.topology) == {}


def test_a_buried_job_that_is_deleted_and_then_kicked_does_not_run(
    client: Client, broker_url: str
) -> None:
    put = client.put("t", id="whole")
    client.put("t", id="by id")
    client.put("t", id="lives")
    for job in take(client, 3):
        job.bury("for a test")
    client.delete(put)
    client.delete("by id")
    kicked = client.buried("t").kick()
    assert (kicked.sent, kicked.dropped_deleted) == (1, 2)
    assert drained(client) == ["lives"]
    assert left_over(broker_url, client.topology) == {}


# Jobs deleted while they were reserved


def _raise(error: BaseException) -> None:
    raise error


ENDS: dict[str, Callable[[ReservedJob], object]] = {
    "fails": lambda _: _raise(ValueError("failed")),
    "retries": lambda _: _raise(Retry("later", delay=0)),
    "gives up": lambda _: _raise(Bury("never")),
    "is too late": lambda job: time.sleep(job.time_left + 0.2),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_job_deleted_during_its_run_does_not_come_back(
    client: Client, make_worker: WorkerFactory, end: str, broker_url: str
) -> None:
    """This holds however its handler ends. A wait for its response raises that it was deleted."""
    worker, seen = make_worker(), list[int]()

    @worker.handler("t", ttr=2 if end == "is too late" else 60, backoff=0, max_attempts=3)
    def work(job: ReservedJob) -> None:
        seen.append(job.attempt)
        deletes.return_when_deleted(job)
        ENDS[end](job)

    job = client.put("t", reply=True)
    with working(worker):
        wait_until(lambda: seen)
        client.delete(job)
        with pytest.raises(NoResponse, match="deleted"):
            client.response(job, wait=patience(10))
        wait_until(lambda: worker.stats().counts.deleted == 1)
        wait_until(lambda: worker.stats().running == 0 and not worker.stats().lost_threads)
        counts = worker.stats().counts
    assert (counts.released, counts.buried, counts.finished) == (0, 0, 0)
    assert seen == [1]
    assert left_over(broker_url, client.topology) == {}


@pytest.mark.parametrize("end", ["release", "bury"])
def test_a_handler_may_settle_its_deleted_job(
    client: Client, make_worker: WorkerFactory, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker, seen = make_worker(), list[int]()

    @worker.handler("t", backoff=0, max_attempts=3)
    def work(job: ReservedJob) -> None:
        seen.append(job.attempt)
        deletes.return_when_deleted(job)
        job.release(0) if end == "release" else job.bury("never")

    job = client.put("t", reply=True)
    with working(worker):
        wait_until(lambda: seen)
        client.delete(job)
        wait_until(lambda: worker.stats().counts.deleted == 1 and not worker.stats().running)
        with pytest.raises(NoResponse, match="deleted"):
            client.response(job, wait=patience(10))
    assert seen == [1]
    assert [one.message for one in caplog.records if one.name == "rabbitdelay.worker"] == []


def test_a_with_block_may_settle_its_deleted_job(client: Client) -> None:
    client.put("t", id="dies")
    (job,) = take(client, 1)
    client.delete("dies")
    deletes.return_when_deleted(job)
    with job:
        job.release(0)
    assert drained(client) == []


def test_a_popped_and_deleted_job_is_settled_as_usual(
    make_client: ClientFactory, broker_url: str
) -> None:
    client = make_client(retry=RetryPolicy(max_attempts=3, backoff=0))
    client.put_many(JobSpec("t", id=str(n), ttr=1) for n in range(4))
    released, buried, raised, late = take(client, 4)
    client.delete_many(job.id for job in (released, buried, raised, late))
    assert deletes.return_when_deleted(late)
    released.release(0)
    buried.bury("never")
    with pytest.raises(ValueError, match="in the block"), raised:
        raise ValueError("in the block")
    with pytest.raises(LeaseLost):
        released.finish()
    wait_until(lambda: len(popper_of(client).consumer.settlement.leases) == 0)
    assert drained(client) == []
    assert left_over(broker_url, client.topology) == {}


def test_a_wait_for_the_response_of_a_dropped_job_raises(client: Client) -> None:
    job = client.put("t", delay=0.2, reply=True)
    client.delete(job)
    wait_until(lambda: client.topics("t")[0].ready == 1)
    assert drained(client) == []
    with pytest.raises(NoResponse, match="deleted"):
        client.response(job, wait=patience(10))


# Deletes of absent jobs, and reused ids


def test_deleting_a_finished_unknown_or_deleted_job_is_not_an_error(client: Client) -> None:
    job = client.put("t", id="once")
    assert drained(client) == ["once"]
    for _ in range(2):
        client.delete(job)
        client.delete("once")
        client.delete("never put")
        assert client.delete_many([job, "once", "once", "never put"]) == 4
    client.put("t", id="never put")
    assert pops(client) == ["never put"]


@pytest.mark.usefixtures("existing_namespace")
def test_the_id_of_a_deleted_job_may_be_reused_at_once(client: Client) -> None:
    for n in range(200):
        client.delete("same")
        client.put("t", n, id="same")
    client.delete_many(["same"])
    client.put("t", 200, id="same")
    client.purge("u")
    client.put("u", id="in a purged topic")
    assert pops(client) == ["same"]
    assert pops(client, "u") == ["in a purged topic"]


@pytest.mark.usefixtures("existing_namespace")
def test_a_job_put_right_after_a_delete_of_its_id_lives(client: Client) -> None:
    """Even within one clock tick, because a delete returns only after its moment has passed."""
    jobs = []
    for n in range(200):
        client.delete(f"id-{n}")
        jobs.append(client.put_nowait("t", id=f"id-{n}"))
    for job in jobs:
        job.result(patience(20))
    assert sorted(pops(client)) == sorted(f"id-{n}" for n in range(200))


def test_only_a_delete_by_id_waits_for_its_moment_to_pass(make_client: ClientFactory) -> None:
    """A delete by job does not affect later jobs, so it need not wait. The test stops the clock."""
    stopped_at, asked = time.time(), list[None]()

    def stopped_clock() -> float:
        asked.append(None)
        return stopped_at

    client = make_client(clock=stopped_clock)
    job = client.put("t", delay=60)
    client.delete("another")
    by_id = len(asked)
    asked.clear()
    client.delete(job)
    client.delete_many([job])
    assert len(asked) < by_id


def test_a_new_job_under_a_deleted_id_is_retried(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker, seen = make_worker(), list[tuple[object, int]]()

    @worker.handler("t", backoff=0.05, max_attempts=3)
    def fail_twice(body: object, job: Job) -> None:
        seen.append((body, job.attempt))
        if job.attempt < 3:
            raise ValueError

    client.put("t", "old", delay=0.3, id="same")
    client.delete("same")
    client.put("t", "new", delay=0.3, id="same")
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1)
        wait_until(lambda: worker.stats().counts.deleted == 1)
    assert seen == [("new", 1), ("new", 2), ("new", 3)]


def test_a_delete_by_job_affects_only_one_of_two_jobs_with_the_same_id(client: Client) -> None:
    first, second = client.put("t", 1, id="same"), client.put("t", 2, id="same")
    client.delete(second)
    job = client.pop("t", wait=patience(5))
    assert job is not None
    assert (job.body, job.token) == (1, first.token)
    job.finish()
    assert client.pop("t") is None


# Other languages


def test_a_message_without_a_put_time_is_deleted_by_its_id(client: Client, broker_url: str) -> None:
    """A delete of its message_id applies to it, at any time."""
    client.put("t", id="first")
    client.delete("plain")
    queue = client.topology.ready_queue("t")
    plain = [(b"1", pika.BasicProperties(message_id=name)) for name in ("plain", "lives")]
    publish(broker_url, queue, *plain, (b"2", None))
    found = pops(client)
    assert found[:2] == ["first", "lives"]
    assert len(found) == 3
    assert left_over(broker_url, client.topology) == {}


def test_records_of_other_programs_are_applied(client: Client, broker_url: str) -> None:
    jobs = [client.put("t", id=name) for name in ("by id", "by token", "kept")]
    # Two jobs put in the same millisecond are ordered by their tokens.
    wait_until(lambda: int(time.time() * 1000) > jobs[2].put_ms)
    jobs += [client.put("t", id=name) for name in ("kept", "lives")]
    client.put("u")
    now_ms = int(time.time() * 1000)
    token, due_ms = jobs[1].token, jobs[1].due_ms
    records: list[dict[str, Any]] = [
        {"delete": ["by id"], "time": now_ms},
        {"delete": [["by token", token, due_ms]], "time": now_ms},
        {"keep": ["kept", jobs[3].token], "time": jobs[3].put_ms, "due": jobs[3].due_ms},
        {"purge": "u", "time": now_ms, "unknown": "field"},
    ]
    deletes.append(broker_url, client.topology, *records)
    assert pops(client, "t", "u") == ["kept", "lives"]
    deletes.append(broker_url, client.topology, {"pause": "t", "id": secrets.token_hex(4)})
    wait_until(lambda: client.tombstones().paused == ("t",))
