"""Replace and reschedule: only the newest lives; and what clocks and bounds have to do with it."""

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
from tests.support import deleting
from tests.support.deleting import left_over, noting, pops, take
from tests.support.fronts import Front
from tests.support.waiting import patience, wait_until
from tests.support.working import Process, working

DAY = timedelta(days=1)


# Replace


def test_only_the_newest_lives(client: Client, make_worker: WorkerFactory, broker_url: str) -> None:
    """Debounced: it runs once, with what was said last; other ids are untouched."""
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


def test_from_four_threads_at_once_exactly_one_lives(
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
    assert pops(clients[1], wait=0.5) == []
    assert set(left_over(broker_url, clients[0].topology)) == set()


def test_a_replaced_job_is_dead_wherever_it_is(client: Client) -> None:
    """Ready, held, or of another topic: the id counts."""
    client.put("t", "held", id="same")
    (held,) = take(client, 1)
    client.put("u", "elsewhere", id="same")
    client.put("t", "ready", id="same")
    client.replace("t", "new", id="same")
    deleting.return_when_deleted(held)
    held.release(0)
    (job,) = take(client, 1, "t", "u")
    assert job.body == "new"
    job.finish()
    assert client.pop(["t", "u"], wait=0.2) is None


def test_what_is_replaced_can_be_deleted_and_put_again(client: Client) -> None:
    client.replace("t", 1, id="same")
    new = client.replace("t", 2, id="same")
    client.delete(new)
    assert client.pop("t", wait=0.2) is None
    client.put("t", 3, id="same")
    client.put("t", 4, id="same")
    assert sorted(job.body for job in take(client, 2)) == [3, 4]


def test_the_new_job_is_retried(client: Client, make_worker: WorkerFactory) -> None:
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
client = front_named(sys.argv[1]).client(sys.argv[2], namespace=sys.argv[3], settle_seconds=0)
client._verbs._deleter.keep = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
client.replace("t", "new", id="same", delay=0.3)
"""


def test_a_crash_in_between_leaves_both(
    front: Front, client: Client, broker_url: str, namespace: str
) -> None:
    """Never none: the new one is put first."""
    client.put("t", "old", id="same", delay=0.3)
    with Process(KILLED_IN_BETWEEN, front.name, broker_url, namespace) as process:
        assert process.wait() < 0
    assert sorted(job.body for job in take(client, 2)) == ["new", "old"]


@pytest.mark.parametrize("wrong", [None, "", 17, "x" * 201, "\ud800"])
@pytest.mark.usefixtures("existing_namespace")
def test_it_needs_an_id(client: Client, wrong: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidJob, match="id"):
        client.replace("t", id=wrong)
    with pytest.raises(TypeError, match="id"):
        client.replace("t")  # type: ignore[call-arg]
    with pytest.raises(InvalidJob, match="topic"):
        client.replace("no topic", id="fine")
    assert client.tombstones().count == 0


# Reschedule


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.8), (60, 0.3)], ids=["later", "earlier"])
def test_it_runs_at_its_new_time_only(
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


def test_a_time_instead_of_a_delay(client: Client) -> None:
    job = client.put("t", delay=60)
    at = datetime.now(UTC) + timedelta(seconds=0.3)
    moved = client.reschedule(job, at=at)
    assert abs(moved.due - at) < timedelta(seconds=0.02)
    (found,) = take(client, 1)
    assert found.token == moved.token


def test_twice_in_a_row(client: Client) -> None:
    """From the job that it was, and from the job that it is."""
    job = client.put("t", delay=0.2)
    second = client.reschedule(client.reschedule(job, delay=0.3), delay=0.4)
    third = client.reschedule(job, delay=0.5)
    (found,) = take(client, 1)
    assert (found.token, found.id) == (third.token, job.id)
    assert second.token != third.token
    found.finish()
    assert client.pop("t", wait=0.3) is None


def test_a_popped_job_can_be_rescheduled(client: Client, broker_url: str) -> None:
    """It is for its holder to finish; what it does otherwise brings nothing back."""
    client.put("t", "body", id="same")
    (job,) = take(client, 1)
    moved = client.reschedule(job, delay=0.3)
    deleting.return_when_deleted(job)
    job.release(0)
    (found,) = take(client, 1)
    assert (found.token, found.body, found.attempt) == (moved.token, "body", 1)
    found.finish()
    assert left_over(broker_url, client.topology) == {}


def test_a_rescheduled_job_keeps_its_attempt(client: Client) -> None:
    """Its attempts go on where they were: rescheduling is not a way around max_attempts."""
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


def test_a_bad_time_leaves_the_job_as_it_is(client: Client) -> None:
    job = client.put("t", delay=0.2)
    for wrong in ({}, {"delay": "soon"}, {"at": datetime(2030, 1, 1)}):  # noqa: DTZ001
        with pytest.raises(InvalidJob):
            client.reschedule(job, **wrong)
    (found,) = take(client, 1)
    assert found.token == job.token


# Clocks


def skewed(make_client: ClientFactory, seconds: float) -> Client:
    return make_client(clock=lambda: time.time() + seconds)


@pytest.mark.parametrize("seconds", [-2, 2], ids=["behind", "ahead"])
def test_by_job_a_delete_is_exact_whatever_the_clocks(
    client: Client, make_client: ClientFactory, seconds: float
) -> None:
    """It kills the one that was given, just put or not, and nothing that is put next."""
    deleter = skewed(make_client, seconds)
    chosen, generated = client.put("t", "dead", id="same"), client.put("t", "dead")
    deleter.delete_many([chosen, generated])
    client.put("t", "lives", id="same")
    assert [job.body for job in take(client, 1)] == ["lives"]
    assert client.pop("t", wait=0.2) is None


def test_by_id_with_a_clock_behind(client: Client, make_client: ClientFactory) -> None:
    """It does not hold for what was put within that time, and holds for what is older."""
    deleter = skewed(make_client, -2)
    younger = skewed(make_client, 0)
    older = skewed(make_client, -3)
    older.put("t", id="older")
    old_generated = older.put("t")
    younger.put("t", id="younger")
    generated = younger.put("t", id=None)
    deleter.delete_many(["older", old_generated.id, "younger", generated.id])
    assert pops(client, wait=0.3) == ["younger", generated.id]


def test_by_id_with_a_clock_ahead(client: Client, make_client: ClientFactory) -> None:
    """It holds, and kills too what is put under the same id until that time has come."""
    deleter = skewed(make_client, 2)
    client.put("t", id="same")
    generated = client.put("t")
    deleter.delete_many(["same", generated.id])
    client.put("t", id="same")
    later = skewed(make_client, 2.5)
    later.put("t", "lives", id="same")
    assert [job.body for job in take(client, 1)] == ["lives"]
    assert client.pop("t", wait=0.2) is None


@pytest.mark.parametrize(
    ("seconds", "bodies"), [(-2, ["new", "old"]), (2, ["new"])], ids=["behind", "ahead"]
)
def test_replace_with_another_clock(
    client: Client, make_client: ClientFactory, seconds: float, bodies: list[str]
) -> None:
    """With a clock behind, what was put within that time lives beside it: never none."""
    replacer = skewed(make_client, seconds)
    client.put("t", "old", id="same")
    replacer.replace("t", "new", id="same")
    assert sorted(job.body for job in take(client, len(bodies))) == bodies
    assert client.pop("t", wait=0.2) is None


@pytest.mark.parametrize("seconds", [-2, 2], ids=["behind", "ahead"])
def test_reschedule_is_exact_whatever_the_clocks(
    client: Client, make_client: ClientFactory, seconds: float
) -> None:
    job = client.put("t", id="same", delay=0.2)
    moved = skewed(make_client, seconds).reschedule(job, delay=0.3)
    (found,) = take(client, 1)
    assert found.token == moved.token
    assert client.pop("t", wait=0.2) is None


TICK_SECONDS = 0.05


def ticking() -> float:
    """A clock of coarse ticks: what is done one after the other is done at one time."""
    return time.time() // TICK_SECONDS * TICK_SECONDS


def test_what_was_put_in_the_same_millisecond_is_replaced(make_client: ClientFactory) -> None:
    client = make_client(clock=ticking)
    for n in range(15):
        client.put("t", "old", id=str(n))
        client.replace("t", "new", id=str(n))
    bodies = [job.body for job in take(client, 15)]
    assert bodies == ["new"] * 15
    assert client.pop("t", wait=0.2) is None


def test_of_two_replaced_in_the_same_millisecond_the_last_lives(make_client: ClientFactory) -> None:
    client = make_client(clock=ticking)
    for n in range(15):
        client.replace("t", "old", id=str(n))
        client.replace("t", "new", id=str(n))
    assert [job.body for job in take(client, 15)] == ["new"] * 15


@pytest.mark.usefixtures("existing_namespace")
def test_what_is_put_after_a_delete_lives_whatever_the_ticks(make_client: ClientFactory) -> None:
    client = make_client(clock=ticking)
    for n in range(15):
        client.delete(str(n))
        client.put("t", id=str(n))
    assert len(pops(client, wait=0.2)) == 15


def test_what_was_replaced_is_rescheduled_with_a_clock_behind(
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


def test_all_clients_of_a_namespace_have_one_max_delay(make_client: ClientFactory) -> None:
    """Else one would forget deletes that another one's jobs still need."""
    make_client(max_delay=2 * DAY).put("t", id="dies")
    same = make_client(max_delay=timedelta(days=2))
    same.delete("dies")
    assert same.pop("t", wait=0.2) is None
    for other in (make_client(max_delay=DAY), make_client(max_delay=3 * DAY), make_client()):
        for call in (partial(other.put, "t"), partial(other.delete, "x"), partial(other.pop, "t")):
            with pytest.raises(TopologyConflict, match=r"with max_delay 2d.*give all its clients"):
                call()


def test_a_worker_of_a_namespace_with_a_max_delay(
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


def test_a_long_delay_of_a_chosen_id_raises_the_horizon(client: Client) -> None:
    """Deletes of chosen ids are kept for that long; a generated id carries its own time."""

    def horizon_ms() -> int:
        return client._follower().following.tombstones.horizon_ms

    client.put("t", delay=60 * DAY)
    client.put("t", delay=30 * DAY, id="short")
    assert horizon_ms() == HORIZON_MS
    client.put("t", delay=60 * DAY, id="long")
    wait_until(lambda: horizon_ms() >= 60 * DAY / timedelta(milliseconds=1))
    client.put_many([JobSpec("t", delay=90 * DAY, id="longer")])
    wait_until(lambda: horizon_ms() >= 90 * DAY / timedelta(milliseconds=1))


def test_the_horizon_needs_no_room_in_a_full_window(make_client: ClientFactory) -> None:
    client = make_client(window=1, timeout=patience(5))
    client.put("t", delay=60 * DAY, id="long")
    assert client.tombstones().records > 0
