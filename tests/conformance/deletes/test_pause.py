"""Pause, resume and purge: whole topics, for all present and future consumers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

from rabbitdelay import Client, InvalidJob, Job, JobSpec, ReservedJob
from rabbitdelay.core.topology.topology import DELIVERY_LIMIT
from tests.conftest import ClientFactory, TopicsFactory, WorkerFactory
from tests.support.brokers.messages import publish
from tests.support.jobs import deletes
from tests.support.jobs.connections import dispatcher_of, popper_of
from tests.support.jobs.deletes import left_over, noting
from tests.support.jobs.popped_jobs import drained, pops, take, withholds
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

# Pause


def test_no_job_of_a_paused_topic_is_handed_out(
    client: Client, make_client: ClientFactory, make_worker: WorkerFactory
) -> None:
    """Prefetched and new jobs wait; running ones continue. The order is kept after resume."""
    worker, seen, go_on = make_worker(concurrency=1, prefetch=5), [], threading.Event()

    @worker.handler("t")
    def work(job: Job) -> None:
        seen.append(job.id)
        go_on.wait(patience(10))

    other = make_client()
    client.put_many(JobSpec("t", id=str(n)) for n in range(5))
    with working(worker):
        wait_until(lambda: len(dispatcher_of(worker).settlement.leases) == 5)
        client.pause("t")
        wait_until(lambda: len(dispatcher_of(worker).settlement.leases) == 1)
        client.put("t", id="5")
        client.put("t", delay=0.1, id="6")
        assert withholds(other, "t")
        go_on.set()
        wait_until(lambda: worker.stats().counts.finished == 1)
        assert withholds(client, "t")
        assert seen == ["0"]
        client.resume("t")
        wait_until(lambda: worker.stats().counts.finished == 7)
    assert seen == [str(n) for n in range(7)]


@pytest.mark.usefixtures("existing_namespace")
def test_a_worker_that_starts_waits_for_a_paused_topic(
    client: Client, make_worker: WorkerFactory
) -> None:
    """The worker handles its other topics."""
    client.pause("t")
    client.put("t", id="waits")
    client.put("u", id="runs")
    worker = make_worker()
    seen = noting(worker, "t", "u")
    with working(worker):
        wait_until(lambda: seen)
        client.put("u", delay=0.3, id="too")
        wait_until(lambda: len(seen) == 2)
        assert seen == ["runs", "too"]
        client.resume("t")
        wait_until(lambda: len(seen) == 3)
    assert seen == ["runs", "too", "waits"]


def test_a_waiting_pop_continues_when_its_topic_is_resumed(
    client: Client, make_client: ClientFactory
) -> None:
    """This includes a pop that was already waiting when the topic was paused."""
    other = make_client()
    other.put("t", id="first")
    (first,) = take(client, 1)
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(take, client, 1)
        wait_until(lambda: popper_of(client).calls)
        other.pause("t")
        wait_until(lambda: client.tombstones().paused)
        other.put("t", id="waits")
        with pytest.raises(TimeoutError):
            popped.result(0.3)
        other.resume("t")
        (job,) = popped.result(patience(10))
    assert (job.id, first.id) == ("waits", "first")
    assert job.redeliveries <= 1
    job.finish()
    first.finish()


@pytest.mark.parametrize(
    "has_job",
    [
        pytest.param(False, id="empty"),
        pytest.param(
            True,
            id="with a job",
        ),
    ],
)
@pytest.mark.usefixtures("existing_namespace")
def test_a_pop_of_several_topics_serves_those_that_are_not_paused(
    client: Client, make_client: ClientFactory, *, has_job: bool
) -> None:
    other = make_client()
    client.pause("paused")
    if has_job:
        other.put("paused", id="waits")
    other.put("open", id="at once")
    job = client.pop(["paused", "open"], wait=patience(10))
    assert job is not None
    job.finish()
    other.put("open", delay=0.3, id="later")
    began = time.monotonic()
    assert pops(client, "paused", "open", wait=1.5) == ["later"]
    assert time.monotonic() - began < patience(4)
    client.resume("paused")
    assert pops(client, "paused", "open", wait=0.3) == (["waits"] if has_job else [])


def test_a_waiting_pop_continues_with_the_topics_that_are_not_paused(
    client: Client, make_client: ClientFactory, make_topics: TopicsFactory
) -> None:
    make_topics("paused", "open")
    other = make_client()
    assert client.pop(["paused", "open"]) is None
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(client.pop, ["paused", "open"], wait=patience(10))
        wait_until(lambda: popper_of(client).calls)
        other.pause("paused")
        wait_until(lambda: client.tombstones().paused)
        other.put("paused", id="waits")
        other.put("open", delay=0.3, id="comes")
        job = popped.result(patience(10))
    assert job is not None
    assert job.id == "comes"
    job.finish()


def test_a_worker_until_empty_ends_despite_a_paused_topic(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """A paused topic counts as empty, and the worker logs that its jobs were not run."""
    client.put("t", id="waits")
    client.put("u", id="runs")
    client.pause("t")
    worker = make_worker()
    seen = noting(worker, "t", "u")
    worker.run(until_empty=True)
    assert seen == ["runs"]
    assert "topic t: paused, its jobs were not run" in caplog.messages
    client.resume("t")
    worker.run(until_empty=True)
    assert seen == ["runs", "waits"]


def test_a_pause_does_not_bury_jobs(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    """Each pause returns prefetched jobs; the broker's delivery count stays far from its limit."""
    worker, seen, go_on = make_worker(concurrency=1, prefetch=3), [], threading.Event()

    @worker.handler("t", ttr=60)
    def work(job: ReservedJob) -> None:
        seen.append((job.id, job.redeliveries))
        go_on.wait(patience(20))

    client.put_many(JobSpec("t", id=name) for name in ("runs", "waits", "waits too"))
    with working(worker):
        settlement = dispatcher_of(worker).settlement
        for _ in range(5):
            wait_until(lambda: len(settlement.leases) == 3)
            client.pause("t")
            wait_until(lambda: len(settlement.leases) == 1)
            client.resume("t")
        go_on.set()
        wait_until(lambda: worker.stats().counts.finished == 3)
    assert {name for name, _ in seen} == {"runs", "waits", "waits too"}
    assert all(redeliveries <= 5 < DELIVERY_LIMIT for _, redeliveries in seen)
    assert left_over(broker_url, client.topology) == {}


@pytest.mark.usefixtures("existing_namespace")
def test_pausing_and_resuming_twice_is_not_an_error(client: Client) -> None:
    client.resume("never.paused")
    for _ in range(2):
        client.pause("t")
    client.put("t", id="waits")
    assert client.pop("t") is None
    for _ in range(2):
        client.resume("t")
    assert drained(client) == ["waits"]
    for act in (client.pause, client.resume, client.purge):
        with pytest.raises(InvalidJob, match="topic"):
            act("not a topic!")
        with pytest.raises(InvalidJob, match="topic"):
            act(None)  # type: ignore[arg-type]


# Purge


def test_a_purge_deletes_all_jobs_of_a_topic(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    """Delayed, ready and buried jobs die; jobs put afterwards and other topics are unaffected."""
    client.put("t", id="buried")
    client.put("u", id="buried elsewhere")
    for job in take(client, 2, "t", "u"):
        job.bury("for a test")
    for topic in ("t", "u"):
        client.put_many(JobSpec(topic, id=f"ready {n}") for n in range(3))
        client.put_many(JobSpec(topic, delay=0.5, id=f"delayed {n}") for n in range(2))
    assert client.purge("t") == 4
    client.put("t", id="lives")
    client.put("t", delay=0.6, id="lives too")
    worker = make_worker()
    seen = noting(worker)
    with working(worker):
        wait_until(lambda: worker.stats().counts.deleted == 2)
        wait_until(lambda: len(seen) == 2)
    assert sorted(seen) == ["lives", "lives too"]
    assert left_over(broker_url, client.topology) == {}
    assert sorted(pops(client, "u", wait=0.3)) == [
        "delayed 0",
        "delayed 1",
        "ready 0",
        "ready 1",
        "ready 2",
    ]
    assert list(left_over(broker_url, client.topology, "u").values()) == [1]


def test_leased_jobs_are_purged_too(client: Client, broker_url: str) -> None:
    client.put_many(JobSpec("t", id=str(n)) for n in range(2))
    client.put("u", id="elsewhere")
    released, finished, elsewhere = take(client, 3, "t", "u")
    assert client.purge("t") == 0
    deletes.return_when_deleted(released)
    assert finished.deleted
    assert not elsewhere.deleted
    released.release(0)
    finished.finish()
    assert drained(client) == []
    assert left_over(broker_url, client.topology) == {}


@pytest.mark.usefixtures("existing_namespace")
def test_purging_an_unknown_topic_is_not_an_error(client: Client) -> None:
    assert client.purge("never.used") == 0
    client.put("never.used", id="lives")
    assert pops(client, "never.used") == ["lives"]


def test_puts_right_after_a_purge_live(client: Client) -> None:
    for n in range(20):
        client.put("t", id=f"dead {n}")
        client.purge("t")
        client.put("t", delay=0.05, id=f"lives {n}")
        (job,) = take(client, 1)
        assert job.id == f"lives {n}"
        job.finish()


def test_plain_messages_published_after_a_purge_live(client: Client, broker_url: str) -> None:
    """Their put time is unknown, so a purge does not apply to them."""
    client.put("t")
    client.purge("t")
    assert client.pop("t") is None
    properties = pika.BasicProperties(message_id="plain")
    publish(broker_url, client.topology.ready_queue("t"), (b"1", properties))
    assert drained(client) == ["plain"]


# Visibility


def test_topics_and_tombstones_report_pauses_and_deletes(client: Client) -> None:
    before_ms = int(time.time() * 1000)
    for topic in ("t", "u"):
        client.put(topic)
    first = client.tombstones()
    assert (first.count, first.oldest_ms, first.snapshot_ms, first.paused) == (0, None, None, ())
    client.pause("t")
    client.delete_many(["a", "b", client.put("u", delay=60)])
    client.purge("gone")
    wait_until(lambda: client.tombstones().count == 4)
    after = client.tombstones()
    assert after.paused == ("t",)
    assert after.memory_bytes > 0
    assert after.oldest_ms is not None
    assert before_ms <= after.oldest_ms <= time.time() * 1000
    assert after.records > first.records
    assert [(one.topic, one.ready, one.paused) for one in client.topics("t", "u")] == [
        ("t", 1, True),
        ("u", 1, False),
    ]
    client.resume("t")
    wait_until(lambda: not any(one.paused for one in client.topics("t", "u")))


def test_a_pause_is_visible_to_its_client_at_once(client: Client) -> None:
    client.put("t")
    for _ in range(10):
        client.pause("t")
        assert [topic.paused for topic in client.topics("t")] == [True]
        client.resume("t")
        assert [topic.paused for topic in client.topics("t")] == [False]
