"""Replace and reschedule: only the newest job lives, also with wrong clocks; and `max_delay`."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from rabbitdelay import Client, InvalidConfiguration, InvalidJob, Job, JobSpec
from rabbitdelay.core.deletes.tombstones import HORIZON_MS
from rabbitdelay.errors import TopologyConflict
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.fronts import Front
from tests.support.jobs import deletes
from tests.support.jobs.deletes import left_over, noting
from tests.support.jobs.popped_jobs import drained, take
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs.script import Process

DAY = timedelta(days=1)


# Replace


def test_only_the_newest_of_replaced_jobs_lives(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    """Debounced: the job runs once, with the last body; other ids are unaffected."""
    worker, seen = make_worker(), list[object]()

    @worker.handler("t")
    def note(body: object) -> None:
        seen.append(body)

    client.put("t", "other", delay=0.4, id="other")
    client.put("t", "first", delay=0.4, id="same")
    for n in range(50):
        last = client.replace("t", n, id="same", delay=0.5)
    assert (last.id, last.body) == ("same", 49)
    with working(worker):
        wait_until(lambda: worker.stats().counts.deleted == 50)
        wait_until(lambda: worker.stats().counts.finished == 2)
    assert seen == ["other", 49]
    assert left_over(broker_url, client.topology) == {}


def test_exactly_one_job_of_four_replacing_threads_lives(
    make_client: ClientFactory, broker_url: str
) -> None:
    clients = [make_client() for _ in range(4)]
    clients[0].put("t", delay=0.1)

    def replace(n: int) -> list[Job]:
        return [clients[n].replace("t", [n, m], id="same", delay=0.3) for m in range(10)]

    with ThreadPoolExecutor(4) as pool:
        jobs = [job for some in pool.map(replace, range(4)) for job in some]
    (lives,) = [job for job in take(clients[0], 2) if job.id == "same"]
    assert lives.token in {job.token for job in jobs}
    assert lives.body[1] == 9
    assert not lives.deleted
    clients[0].put("t", id="last", delay=0.5)
    (last,) = take(clients[1], 1)
    assert last.id == "last"
    last.finish()
    assert set(left_over(broker_url, clients[0].topology)) == set()


def test_a_replaced_job_is_dead_in_every_state_and_topic(client: Client) -> None:
    """The id decides: ready, leased and in another topic, the old jobs are dead."""
    client.put("t", "popped", id="same")
    (popped,) = take(client, 1)
    client.put("u", "elsewhere", id="same")
    client.put("t", "ready", id="same")
    client.replace("t", "new", id="same")
    deletes.return_when_deleted(popped)
    popped.release(0)
    (job,) = take(client, 1, "t", "u")
    assert job.body == "new"
    job.finish()
    assert drained(client, "t", "u") == []


def test_a_replaced_job_can_be_deleted_and_put_again(client: Client) -> None:
    client.replace("t", 1, id="same")
    new = client.replace("t", 2, id="same")
    client.delete(new)
    assert drained(client) == []
    client.put("t", 3, id="same")
    client.put("t", 4, id="same")
    assert sorted(job.body for job in take(client, 2)) == [3, 4]


def test_a_replacing_job_is_retried(client: Client, make_worker: WorkerFactory) -> None:
    worker, seen = make_worker(), list[tuple[int, int]]()

    @worker.handler("t", backoff=0.05)
    def fail_once(body: int, job: Job) -> None:
        seen.append((body, job.attempt))
        if job.attempt == 1:
            raise ValueError

    client.put("t", 1, id="same", delay=0.3)
    client.replace("t", 2, id="same")
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1)
        wait_until(lambda: worker.stats().counts.deleted == 1)
    assert seen == [(2, 1), (2, 2)]


KILLED_IN_BETWEEN = """
import os, signal, sys
from tests.support.fronts import front_named
client = front_named(sys.argv[1]).client(sys.argv[2], namespace=sys.argv[3], stabilise_seconds=0)
client._engine._log_writer.keep = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
client.replace("t", "new", id="same", delay=0.3)
"""


def test_a_crash_during_replace_leaves_both_jobs(
    front: Front, client: Client, broker_url: str, namespace: str
) -> None:
    """At least one job always remains, because the new one is put first."""
    client.put("t", "old", id="same", delay=0.3)
    with Process(KILLED_IN_BETWEEN, front.name, broker_url, namespace) as process:
        assert process.wait() < 0
    assert sorted(job.body for job in take(client, 2)) == ["new", "old"]


@pytest.mark.parametrize("wrong", [None, "", 17, "x" * 201, "\ud800"])
@pytest.mark.usefixtures("existing_namespace")
def test_replace_needs_an_id(client: Client, wrong: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidJob, match="id"):
        client.replace("t", id=wrong)
    with pytest.raises(TypeError, match="id"):
        client.replace("t")  # type: ignore[call-arg]
    with pytest.raises(InvalidJob, match="topic"):
        client.replace("no topic", id="fine")
    assert client.tombstones().count == 0


# Reschedule


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.8), (60, 0.3)], ids=["later", "earlier"])
def test_a_rescheduled_job_runs_at_its_new_time_only(
    client: Client, make_worker: WorkerFactory, before: float, after: float
) -> None:
    worker, seen = make_worker(), list[tuple[str, object, float]]()

    @worker.handler("t")
    def note(job: Job) -> None:
        seen.append((job.id, job.body, time.time()))

    job = client.put("t", {"order": 42}, delay=before, ttr=20, max_attempts=2)
    moved = client.reschedule(job, delay=after)
    assert (moved.id, moved.body, moved.ttr_ms, moved.max_attempts) == (
        job.id,
        job.body,
        20_000,
        2,
    )
    assert moved.token != job.token
    with working(worker):
        wait_until(lambda: seen)
        if before < after:
            wait_until(lambda: worker.stats().counts.deleted == 1)
    ((name, body, at),) = seen
    assert (name, body) == (job.id, {"order": 42})
    assert at >= moved.due_ms / 1000


def test_reschedule_accepts_a_time_instead_of_a_delay(client: Client) -> None:
    job = client.put("t", delay=60)
    at = datetime.now(UTC) + timedelta(seconds=0.3)
    moved = client.reschedule(job, at=at)
    assert abs(moved.due - at) < timedelta(seconds=0.02)
    (found,) = take(client, 1)
    assert found.token == moved.token


def test_a_job_can_be_rescheduled_repeatedly(client: Client) -> None:
    """From the original job object and from the one that reschedule returned."""
    job = client.put("t", delay=0.2)
    second = client.reschedule(client.reschedule(job, delay=0.3), delay=0.4)
    third = client.reschedule(job, delay=0.5)
    (found,) = take(client, 1)
    assert (found.token, found.id) == (third.token, job.id)
    assert second.token != third.token
    found.finish()
    assert drained(client) == []


def test_a_popped_job_can_be_rescheduled(client: Client, broker_url: str) -> None:
    """The consumer may still finish the old job, and releasing it does not bring it back."""
    client.put("t", "body", id="same")
    (job,) = take(client, 1)
    moved = client.reschedule(job, delay=0.3)
    deletes.return_when_deleted(job)
    job.release(0)
    (found,) = take(client, 1)
    assert (found.token, found.body, found.attempt) == (moved.token, "body", 1)
    found.finish()
    assert left_over(broker_url, client.topology) == {}


def test_a_rescheduled_job_keeps_its_attempt(client: Client) -> None:
    """Attempts continue to count, so rescheduling does not bypass max_attempts."""
    client.put("t", "body", id="same", max_attempts=3)
    (first,) = take(client, 1)
    first.release(0)
    (second,) = take(client, 1)
    moved = client.reschedule(second, delay=0.2)
    second.finish()
    (found,) = take(client, 1)
    assert (found.token, found.attempt, found.max_attempts) == (moved.token, 2, 3)
    assert moved.attempt == 2


@pytest.mark.parametrize("wrong", ["an-id", None, 17, JobSpec("t")])
def test_only_a_job_can_be_rescheduled(client: Client, wrong: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidJob, match="needs the job that put returned"):
        client.reschedule(wrong, delay=1)


def test_an_invalid_time_leaves_the_job_unchanged(client: Client) -> None:
    job = client.put("t", delay=0.2)
    for wrong in ({}, {"delay": "soon"}, {"at": datetime(2030, 1, 1)}):  # noqa: DTZ001
        with pytest.raises(InvalidJob):
            client.reschedule(job, **wrong)
    (found,) = take(client, 1)
    assert found.token == job.token


# Clocks


SKEW_SECONDS = 60.0
"""More than a test takes, so that its calls do not catch up with a wrong clock."""


def skewed(make_client: ClientFactory, seconds: float) -> Client:
    return make_client(clock=lambda: time.time() + seconds)


@pytest.mark.parametrize("seconds", [-2, 2], ids=["behind", "ahead"])
def test_a_delete_by_job_is_exact_with_any_clock(
    client: Client, make_client: ClientFactory, seconds: float
) -> None:
    """The delete applies to the given job, however new, and not to a job that is put next."""
    deleter = skewed(make_client, seconds)
    chosen, generated = client.put("t", "dead", id="same"), client.put("t", "dead")
    deleter.delete_many([chosen, generated])
    client.put("t", "lives", id="same")
    assert [job.body for job in take(client, 1)] == ["lives"]
    assert drained(client) == []


def test_a_delete_by_id_with_a_slow_clock(client: Client, make_client: ClientFactory) -> None:
    """The delete misses jobs put within the clock's lag and applies to older ones."""
    deleter = skewed(make_client, -SKEW_SECONDS)
    younger = skewed(make_client, 0)
    older = skewed(make_client, -2 * SKEW_SECONDS)
    older.put("t", id="older")
    old_generated = older.put("t")
    younger.put("t", id="younger")
    generated = younger.put("t", id=None)
    deleter.delete_many(["older", old_generated.id, "younger", generated.id])
    assert drained(client) == ["younger", generated.id]


def test_a_delete_by_id_with_a_fast_clock(client: Client, make_client: ClientFactory) -> None:
    """The delete also applies to jobs put under the same id until the clock's time is reached."""
    deleter = skewed(make_client, SKEW_SECONDS)
    client.put("t", id="same")
    generated = client.put("t")
    deleter.delete_many(["same", generated.id])
    client.put("t", id="same")
    later = skewed(make_client, 2 * SKEW_SECONDS)
    later.put("t", "lives", id="same")
    assert [job.body for job in take(client, 1)] == ["lives"]
    assert drained(client) == []


@pytest.mark.parametrize(
    ("seconds", "bodies"),
    [(-SKEW_SECONDS, ["new", "old"]), (SKEW_SECONDS, ["new"])],
    ids=["behind", "ahead"],
)
def test_replace_with_a_wrong_clock(
    client: Client, make_client: ClientFactory, seconds: float, bodies: list[str]
) -> None:
    """With a slow clock, a job put within its lag lives beside the new one: at least one lives."""
    replacer = skewed(make_client, seconds)
    client.put("t", "old", id="same")
    replacer.replace("t", "new", id="same")
    assert sorted(job.body for job in take(client, len(bodies))) == bodies
    assert drained(client) == []


@pytest.mark.parametrize("seconds", [-2, 2], ids=["behind", "ahead"])
def test_reschedule_is_exact_with_any_clock(
    client: Client, make_client: ClientFactory, seconds: float
) -> None:
    job = client.put("t", id="same", delay=0.2)
    moved = skewed(make_client, seconds).reschedule(job, delay=0.3)
    (found,) = take(client, 1)
    assert found.token == moved.token
    assert drained(client) == []


TICK_SECONDS = 0.05


def ticking() -> float:
    """Return the time of a clock with coarse ticks, on which consecutive calls get one time."""
    return time.time() // TICK_SECONDS * TICK_SECONDS


def test_a_job_put_in_the_same_millisecond_is_replaced(make_client: ClientFactory) -> None:
    client = make_client(clock=ticking)
    for n in range(15):
        client.put("t", "old", id=str(n))
        client.replace("t", "new", id=str(n))
    bodies = [job.body for job in take(client, 15)]
    assert bodies == ["new"] * 15
    assert drained(client) == []


def test_the_last_of_two_replaces_in_the_same_millisecond_lives(make_client: ClientFactory) -> None:
    client = make_client(clock=ticking)
    for n in range(15):
        client.replace("t", "old", id=str(n))
        client.replace("t", "new", id=str(n))
    assert [job.body for job in take(client, 15)] == ["new"] * 15


def test_a_job_put_after_a_replace_in_the_same_tick_lives(make_client: ClientFactory) -> None:
    client = make_client(clock=ticking)
    for n in range(15):
        client.replace("t", "old", id=str(n))
        client.put("t", "new", id=str(n))
    assert sorted(job.body for job in take(client, 30)) == ["new"] * 15 + ["old"] * 15


@pytest.mark.usefixtures("existing_namespace")
def test_a_job_put_after_a_delete_in_the_same_tick_lives(make_client: ClientFactory) -> None:
    client = make_client(clock=ticking)
    for n in range(15):
        client.delete(str(n))
        client.put("t", id=str(n))
    assert len(drained(client)) == 15


def test_a_replaced_job_is_rescheduled_with_a_slow_clock(
    client: Client, make_client: ClientFactory
) -> None:
    job = client.replace("t", id="same", delay=0.2)
    moved = skewed(make_client, -2).reschedule(job, delay=0.3)
    found = client.pop("t", wait=patience(10))
    assert found is not None
    assert found.token == moved.token


# Bounds


def test_a_delay_above_max_delay_is_refused(front: Front, make_client: ClientFactory) -> None:
    client = make_client(max_delay=DAY)
    job = client.put("t", delay=DAY, id="fine")
    refused: list[Callable[[], object]] = [
        partial(client.put, "t", delay=DAY + timedelta(seconds=1)),
        partial(client.replace, "t", id="fine", delay=2 * DAY),
        partial(client.reschedule, job, at=datetime.now(UTC) + 2 * DAY),
    ]
    for act in refused:
        with pytest.raises(InvalidJob, match="max_delay"):
            act()
    client.delete("fine")
    wait_until(lambda: client.tombstones().count == 1)
    for wrong in (-1, "1d", timedelta(days=9 * 366)):
        with pytest.raises(InvalidConfiguration, match="max_delay"):
            front.client("amqp://localhost", max_delay=wrong)


def test_all_clients_of_a_namespace_have_the_same_max_delay(make_client: ClientFactory) -> None:
    """A client with a lower max_delay would forget deletes that others' jobs still need."""
    make_client(max_delay=2 * DAY).put("t", id="dies")
    same = make_client(max_delay=timedelta(days=2))
    same.delete("dies")
    assert drained(same) == []
    for other in (make_client(max_delay=DAY), make_client(max_delay=3 * DAY), make_client()):
        for call in (partial(other.put, "t"), partial(other.delete, "x"), partial(other.pop, "t")):
            with pytest.raises(TopologyConflict, match=r"with max_delay 2d.*give all its clients"):
                call()


def test_a_worker_needs_the_max_delay_of_its_namespace(
    make_client: ClientFactory, make_worker: WorkerFactory
) -> None:
    client = make_client(max_delay=DAY)
    client.put("t", id="runs")
    client.delete(client.put("t"))
    worker, other = make_worker(max_delay=DAY), make_worker()
    seen = noting(worker)
    worker.run(until_empty=True)
    assert seen == ["runs"]
    noting(other)
    with pytest.raises(TopologyConflict, match="max_delay"):
        other.run(until_empty=True)


def test_a_long_delay_with_a_chosen_id_raises_the_horizon(client: Client) -> None:
    """Deletes of chosen ids are kept that long; a generated id carries its put time."""

    def horizon_ms() -> int:
        return client._log_reader().known.following.tombstones.horizon_ms

    client.put("t", delay=60 * DAY)
    client.put("t", delay=30 * DAY, id="short")
    assert horizon_ms() == HORIZON_MS
    client.put("t", delay=60 * DAY, id="long")
    wait_until(lambda: horizon_ms() >= 60 * DAY / timedelta(milliseconds=1))
    client.put_many([JobSpec("t", delay=90 * DAY, id="longer")])
    wait_until(lambda: horizon_ms() >= 90 * DAY / timedelta(milliseconds=1))


def test_a_horizon_record_does_not_need_room_in_the_window(make_client: ClientFactory) -> None:
    client = make_client(window=1, timeout=patience(5))
    client.put("t", delay=60 * DAY, id="long")
    assert client.tombstones().records > 0
