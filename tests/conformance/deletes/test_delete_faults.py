"""Deletes hold when workers die, the broker dies or is suspended, and the log is deleted.

Every test has jobs that must run beside those that must not.
"""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from rabbitdelay import Client, Job, JobSpec, Worker
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine import connections
from rabbitdelay.engine.delete_log import fence, log_upkeep
from rabbitdelay.engine.deletes import known_deletes, snapshot_writer
from rabbitdelay.errors import OutcomeUnknown
from rabbitdelay.private_broker import PrivateBroker
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.brokers import streams
from tests.support.brokers.messages import publish
from tests.support.brokers.private_brokers import standing_still
from tests.support.fronts import Front
from tests.support.jobs.connections import log_reader_of
from tests.support.jobs.delete_load import DELETER, WORKER, Books, Pace, put_over, times
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs.script import Process

SAYS_CUT_OFF = "log of deletes: cut off, handing out no jobs"
SAYS_READ = "log of deletes: read ("
REFUSED_SECONDS = 2.0
"""Time that a publisher gives a stream that refuses messages, before it tries another channel."""


class Seen:
    """A handler that records the jobs that it ran, with their times."""

    def __init__(self, worker: Worker, *topics: str, seconds: float = 0.0) -> None:
        self.times: dict[str, float] = {}
        self._seconds = seconds
        for topic in topics or ("t",):
            worker.handler(topic, backoff=0)(self._run)

    def _run(self, job: Job) -> None:
        self.times[job.id] = time.monotonic()
        time.sleep(self._seconds)

    @property
    def ids(self) -> set[str]:
        return set(self.times.copy())

    def wait_for(self, ids: set[str], *, seconds: float = 60.0) -> None:
        """Wait until the jobs with these ids have run."""
        what = f"{len(ids)} jobs run"
        wait_until(lambda: ids <= self.ids, seconds=seconds, what=what)


def wait_for_deleted(worker: Worker, count: int) -> None:
    """Wait until a worker has dropped `count` jobs."""
    wait_until(
        lambda: worker.stats().counts.deleted == count, seconds=60, what=f"{count} are dropped"
    )


# Many jobs, many deletes, restarted workers


@pytest.mark.parametrize(
    ("count", "deleters", "shortest_span"),
    [
        pytest.param(600, 2, 5.0, id="600 jobs"),
        pytest.param(20_000, 4, 20.0, id="20,000 jobs", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("existing_namespace")
@pytest.mark.timeout(240)
def test_half_of_the_jobs_are_deleted_while_workers_are_restarted(
    front: Front,
    client: Client,
    broker_url: str,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
    *,
    tmp_path: Path,
    count: int,
    deleters: int,
    shortest_span: float,
) -> None:
    """No deleted job runs, unless it had just been handed out; all others run."""
    arguments = (front.name, broker_url, namespace)
    one, two = Process(WORKER, *arguments), Process(WORKER, *arguments)
    plan = tmp_path / "plan"
    shares = [
        Process(DELETER, *arguments, str(n), str(deleters), str(count), str(plan))
        for n in range(deleters)
    ]
    workers = [one, two]
    try:
        for deleter in shares:
            deleter.wait_for("ready", seconds=60)
        pace = Pace.measure(client, count)  # beside these processes
        lead, span = pace.lead(), pace.span(shortest_span)
        first_due = time.time() + lead
        put_over(client, count, first_due, span)
        (tmp_path / "new plan").write_text(f"{first_due} {span}")
        (tmp_path / "new plan").rename(plan)
        wait_until(lambda: time.time() > first_due + span / 3, seconds=lead + span)
        one.signal(signal.SIGKILL)
        workers.append(Process(WORKER, *arguments))
        wait_until(lambda: time.time() > first_due + 2 * span / 3, seconds=span)
        two.signal(signal.SIGTERM)
        workers.append(Process(WORKER, *arguments))
        for deleter in shares:
            deleter.wait_for("done", seconds=90)
        deleted = times(shares, "deleted")
        others = {f"job-{n}" for n in range(count)} - deleted.keys()
        wait_until(lambda: others <= times(workers, "ran").keys(), seconds=90)
        wait_until(lambda: client.topics("t")[0].ready == 0, seconds=60)
        books = Books(deleted, times(workers, "ran"))
    finally:
        for process in (*workers, *shares):
            process.__exit__(None, None, None)
    with capsys.disabled():
        print(f"\n{count} jobs over {span:.0f} s: {books}", end=" ")  # noqa: T201 - asked for
    assert not books.wrong
    assert len(deleted) > count / 8
    assert len(books.too_late | books.just_missed) < len(deleted) / 4


@pytest.mark.timeout(180)
def test_a_starting_worker_reads_all_of_a_long_log_first(
    client: Client, make_worker: WorkerFactory
) -> None:
    """The jobs are ready before the worker starts, and their deletes are at the end of the log."""
    dead = [f"dead-{n}" for n in range(300)]
    alive = {f"alive-{n}" for n in range(30)}
    client.put_many(JobSpec("t", id=name) for name in sorted([*dead, *alive], key=hash))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client.delete, (f"single-{n}" for n in range(3_000))))
    client.delete_many(f"packed-{n}" for n in range(97_000))
    client.delete_many(dead)
    worker = make_worker()
    seen = Seen(worker)
    with working(worker):
        seen.wait_for(alive)
        wait_for_deleted(worker, 300)
        assert log_reader_of(worker).known.stats().count == 100_300
    assert seen.ids == alive


# The broker is killed or suspended


@pytest.mark.timeout(180)
def test_deletes_continue_when_the_broker_is_killed(
    front: Front,
    breakable_broker: PrivateBroker,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A delete that returned holds, before and after the kill; the outcome of others is unknown."""
    broker = breakable_broker
    first_due = time.time() + 9
    worker = front.worker(broker.url, namespace=namespace, concurrency=10)
    seen = Seen(worker)
    with front.client(broker.url, namespace=namespace, timeout=patience(20)) as client:
        client.put("t", id="before-all")  # the queues are stable afterwards
        with working(worker):
            seen.wait_for({"before-all"})
            put_over(client, 2_000, first_due, 8.0)
            with deleting(client, [f"job-{n}" for n in range(0, 2_000, 2)]) as deletes:
                wait_until(lambda: len(deletes.returned) > 200, seconds=30)
                broker.nodes[0].kill()
                broker.start()
                wait_until(deletes.is_done, seconds=90)
            others = {f"job-{n}" for n in range(1, 2_000, 2)}
            seen.wait_for(others)
            wait_until(lambda: client.topics("t")[0].ready == 0, seconds=60)
            wait_until(lambda: worker.stats().running == 0)
    books = Books(deletes.returned, seen.times)
    with capsys.disabled():
        print(f"\n{books}; {len(deletes.unknown)} unknown", end=" ")  # noqa: T201 - asked for
    assert not books.wrong
    assert len(deletes.returned) > 900


class Deletes:
    """A thread that deletes jobs one by one and records when each delete returned."""

    def __init__(self, client: Client, ids: list[str]) -> None:
        self.returned: dict[str, float] = {}
        self.unknown: list[str] = []
        self._client = client
        self._ids = ids
        self.thread = threading.Thread(target=self._delete)

    def is_done(self) -> bool:
        """Return whether every delete has returned or failed."""
        return len(self.returned) + len(self.unknown) == len(self._ids)

    def _delete(self) -> None:
        for name in self._ids:
            try:
                self._client.delete(name)
                self.returned[name] = time.monotonic()
            except OutcomeUnknown:
                self.unknown.append(name)


@contextmanager
def deleting(client: Client, ids: list[str]) -> Iterator[Deletes]:
    """Delete these ids in order on another thread inside the block."""
    deletes = Deletes(client, ids)
    deletes.thread.start()
    try:
        yield deletes
    finally:
        deletes.thread.join(patience(120))


@pytest.mark.timeout(180)
def test_no_deleted_job_runs_while_the_broker_is_suspended(
    front: Front,
    breakable_broker: PrivateBroker,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker does not hand out prefetched jobs while it cannot learn of deletes."""
    monkeypatch.setattr(fence, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 0.5)
    worker = front.worker(breakable_broker.url, namespace=namespace, concurrency=1, prefetch=100)
    seen = Seen(worker, seconds=0.05)
    with front.client(breakable_broker.url, namespace=namespace, timeout=patience(20)) as client:
        client.put_many(JobSpec("t", id=str(n)) for n in range(100))
        client.delete("99")
        with working(worker):
            wait_until(lambda: len(seen.ids) > 3, seconds=30)
            with standing_still(*breakable_broker.nodes):
                wait_until(lambda: SAYS_CUT_OFF in caplog.text, seconds=30)
                wait_until(lambda: worker.stats().running == 0)
                handed_out = seen.ids
                assert len(handed_out) < 90
                time.sleep(1.0)  # only time shows that no job is handed out
                assert seen.ids == handed_out
                assert not log_reader_of(worker).is_current
                assert "was not read back in time" in log_reader_of(worker).status.text
            seen.wait_for({str(n) for n in range(99)})
            wait_for_deleted(worker, 1)
            assert SAYS_READ in caplog.text
    assert "99" not in seen.ids


# Deletion of the log and of snapshots


def test_deletes_hold_when_the_log_is_deleted_under_a_worker(
    client: Client,
    broker_url: str,
    namespace: str,
    make_worker: WorkerFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker hands out no job until it has rewritten its tombstones, for later workers too."""
    first, second = make_worker(), make_worker()
    seen, seen_later = Seen(first), Seen(second, "t", "second")
    soon = [client.put("t", delay=4) for _ in range(50)]
    client.put_many(JobSpec("second", id=f"later-{n}") for n in range(50))
    client.delete_many([*soon, *(f"later-{n}" for n in range(50))])
    client.pause("paused")
    with working(first):
        log_reader = log_reader_of(first)
        wait_until(lambda: log_reader.is_current and log_reader.known.stats().count == 100)
        caplog.set_level(logging.INFO, logger="rabbitdelay")
        caplog.clear()
        streams.delete_queue(broker_url, f"{namespace}.tombstones")
        wait_until(lambda: not log_reader.is_current)
        client.put("t", id="meanwhile")
        seen.wait_for({"meanwhile"})
        wait_until(lambda: "job meanwhile" in caplog.text)
        events = [record.getMessage() for record in list(caplog.records)]
        read = next(n for n, text in enumerate(events) if text.startswith("log of deletes: read"))
        run = next(n for n, text in enumerate(events) if text.startswith("job meanwhile"))
        assert read < run
        wait_for_deleted(first, 50)
    assert SAYS_CUT_OFF in caplog.text
    assert seen.ids == {"meanwhile"}
    with working(second):
        client.put("second", id="at last")
        wait_for_deleted(second, 50)
        seen_later.wait_for({"at last"})
        assert log_reader_of(second).known.stats().paused == ("paused",)
    assert seen_later.ids == {"at last"}


def test_deletes_hold_when_the_log_is_deleted_repeatedly(
    client: Client, broker_url: str, namespace: str, make_worker: WorkerFactory
) -> None:
    """Every delete that returned holds while a worker runs."""
    worker = make_worker()
    seen, deleted = Seen(worker), dict[str, float]()
    client.put("t", id="first")

    def delete(name: str) -> None:
        client.delete(name)
        deleted[name] = time.monotonic()

    def delete_with_the_log_between(prefix: str) -> float:
        """Return the seconds that 100 deletes and the deletion of the log take."""
        began = time.monotonic()
        for n in range(50):
            delete(f"{prefix}-{n}")
        wait_until(lambda: knows(worker, f"{prefix}-49"))
        streams.delete_queue(broker_url, f"{namespace}.tombstones")
        for n in range(50, 100):
            delete(f"{prefix}-{n}")
        return time.monotonic() - began

    with working(worker):
        wait_until(lambda: log_reader_of(worker).is_current)
        delay = 3 + 4 * (delete_with_the_log_between("trial") + REFUSED_SECONDS)
        prefixes = ("a", "b", "c")
        specs = [JobSpec("t", id=f"{one}-{n}", delay=delay) for one in prefixes for n in range(200)]
        client.put_many(specs)
        for prefix in prefixes:
            delete_with_the_log_between(prefix)
        seen.wait_for({f"{prefix}-{n}" for prefix in prefixes for n in range(100, 200)})
        books = Books(deleted, seen.times)
        wait_for_deleted(worker, 300 - len(books.too_late | books.just_missed))
    assert not books.wrong
    assert len(books.too_late | books.just_missed) < 100, "the first deletes came in time"


def knows(worker: Worker, id: str) -> bool:
    """Return whether a worker knows that a job was deleted."""
    log_reader = log_reader_of(worker)
    with log_reader.known.locked() as following:
        return following.tombstones.kills("t", id, "", 1) is not None


def test_a_worker_continues_when_snapshots_and_their_queue_are_deleted(
    client: Client,
    broker_url: str,
    namespace: str,
    make_worker: WorkerFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker continues, and new snapshots are taken."""
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 500)
    monkeypatch.setattr(snapshot_writer, "ASK_AGAIN_SECONDS", 1.0)
    topology = Topology(namespace)
    worker = make_worker()
    seen = Seen(worker)
    with working(worker):
        wait_until(lambda: log_reader_of(worker).is_current)
        client.delete_many(f"first-{n}" for n in range(600))
        wait_until(lambda: log_reader_of(worker).known.stats().snapshot_ms is not None, seconds=30)
        for name in (topology.snapshots, topology.compaction):
            streams.delete_queue(broker_url, name)
        taken_ms = log_reader_of(worker).known.stats().snapshot_ms or 0
        client.put("t", id="continues")
        seen.wait_for({"continues"})
        client.delete_many(f"second-{n}" for n in range(1_300))
        wait_until(
            lambda: (log_reader_of(worker).known.stats().snapshot_ms or 0) > taken_ms, seconds=60
        )
        assert len(streams.trailers(broker_url, topology.snapshots)) == 1
        assert log_reader_of(worker).is_current


# Jobs that waited longer than tombstones are remembered


def test_an_overdue_job_is_looked_up_in_the_whole_log(
    client: Client,
    make_client: ClientFactory,
    make_worker: WorkerFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Consumers have forgotten its tombstone, and the snapshot does not contain it."""
    forget_soon(monkeypatch)
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 1_000_000)
    dead, alive = client.put("t", delay=0.1), client.put("t", delay=0.1)
    client.delete(dead.id)
    other = make_client()
    assert other._log_reader().is_current
    wait_until(lambda: other.tombstones().count == 0, seconds=30, what="the client forgets")
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 1)
    wait_until(lambda: other.tombstones().snapshot_ms is not None, seconds=30)
    worker = make_worker()
    seen = Seen(worker)
    with working(worker):
        seen.wait_for({alive.id})
        wait_for_deleted(worker, 1)
    assert seen.ids == {alive.id}
    assert "due before the oldest delete kept here" in caplog.text


@pytest.mark.usefixtures("existing_namespace")
def test_one_reading_of_the_log_serves_jobs_with_ever_older_due_times(
    client: Client,
    broker_url: str,
    namespace: str,
    make_worker: WorkerFactory,
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each job was due two days before the previous one."""
    monkeypatch.setattr(log_upkeep, "SWEEP_SECONDS", 0.05)
    worker = make_worker()
    seen = Seen(worker)
    client.delete("dead")
    with working(worker):
        client.put("t", id="now")
        seen.wait_for({"now"})
        wait_until(lambda: log_reader_of(worker).known.following.tombstones.floor_ms > 0)
        now_ms, day_ms = int(time.time() * 1000), 86_400_000
        dues = {f"due-{n}": now_ms - 2 * n * day_ms for n in range(1, 11)}
        dues["dead"] = now_ms - 30 * day_ms
        dues["before all"] = 1
        for name, due_ms in dues.items():
            headers = {"rd-due": due_ms, "rd-put": due_ms}
            properties = pika.BasicProperties(message_id=name, headers=headers)
            publish(broker_url, Topology(namespace).ready_queue("t"), (b"", properties))
        seen.wait_for(dues.keys() - {"dead"})
        wait_for_deleted(worker, 1)
    assert seen.ids == {"now", *dues} - {"dead"}
    assert caplog.text.count("due before the oldest delete kept here") == 1


def forget_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make consumers forget a tombstone half a second after its job is due."""
    monkeypatch.setattr(connections, "GRACE_MS", 500)
    monkeypatch.setattr(log_upkeep, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(known_deletes, "SWEPT_AT_ONCE", 1.0)
