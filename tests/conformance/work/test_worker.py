"""Workers: handlers, the outcomes of their jobs, and how a worker stops."""

import asyncio
import gc
import logging
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pika
import pytest
from pydantic import BaseModel

from rabbitdelay import (
    Bury,
    Client,
    InvalidConfiguration,
    Job,
    JobSpec,
    LeaseLost,
    NoResponse,
    ReservedJob,
    Retry,
    TimedOut,
    TopologyMissing,
    Worker,
)
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.work.run import Run
from tests.conftest import ClientFactory, LookerFactory, TopicsFactory, WorkerFactory
from tests.support.brokers.messages import publish
from tests.support.fronts import Front
from tests.support.jobs.connections import cut_worker, dispatcher_of, worker_connector
from tests.support.jobs.deletes import left_over
from tests.support.jobs.popped_jobs import take
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs import process_handlers
from tests.support.programs.script import Process

TOUCHED_TTR_SECONDS = 4
"""Longer than a busy machine delays a touch."""
STABILISE_SECONDS = 5


def _nothing(body: object) -> None:
    """Accept any body."""


class Order(BaseModel):
    order: int


def test_a_handler_gets_the_model_and_the_job(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    """An invalid body is buried at once, with the validation error as the reason."""
    worker, seen = make_worker(), []

    @worker.handler("t", ttr=30)
    def close(order: Order, job: Job) -> None:
        seen.append((order.order, job.id, job.attempt, job.ttr.total_seconds()))

    client.put("t", {"order": 42}, id="right")
    client.put("t", {"order": "x"}, id="wrong")
    client.put("t", b"{", content_type="application/json", id="broken")
    with working(worker):
        graves = buried("t").wait_for(2)
        wait_until(lambda: seen)
    assert seen == [(42, "right", 1, 30.0)]
    reasons = {message.message_id: message.headers["rd-reason"] for message in graves}
    assert "order" in reasons["wrong"]
    assert "JSON" in reasons["broken"]
    assert all(message.headers["rd-attempt"] == 1 for message in graves)


def test_a_handlers_exception_decides_the_fate_of_its_job(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    """Retry, Bury or any other exception; its bounded text is in the headers of each attempt."""
    worker, seen = make_worker(), []
    errors: dict[str, BaseException] = {
        "retry": Retry("later", delay=0.3),
        "bury": Bury("never"),
        "error": ValueError("x" * 5_000),
        "exit": SystemExit(3),
        "once": ValueError("its own max_attempts"),
        "slow": ValueError("its own backoff"),
    }

    @worker.handler("t", max_attempts=3, backoff=0)
    def fail(job: ReservedJob) -> None:
        seen.append(
            (job.id, job.attempt, time.monotonic(), job.message_headers.get("rd-error-type"))
        )
        raise errors[job.id]

    for name in errors:
        if name == "slow":
            client.put_many([JobSpec("t", id="slow", backoff=1, max_attempts=2)])
        else:
            client.put("t", id=name, max_attempts=1 if name == "once" else None)
    with working(worker):
        graves = buried("t").wait_for(len(errors))
    attempts = Counter(name for name, *_ in seen)
    assert attempts == {"retry": 3, "bury": 1, "error": 3, "exit": 3, "once": 1, "slow": 2}
    times = {(name, attempt): at for name, attempt, at, _ in seen}
    assert times["retry", 2] - times["retry", 1] >= 0.3
    assert times["slow", 2] - times["slow", 1] >= 0.5
    assert {kind for name, attempt, _, kind in seen if name == "error" and attempt > 1} == {
        "ValueError"
    }
    headers = {message.message_id: message.headers for message in graves}
    assert headers["bury"]["rd-reason"] == "never"
    assert headers["error"]["rd-reason"] == "attempt 3 of 3 failed"
    assert len(headers["error"]["rd-error"]) <= 1_000
    assert headers["exit"]["rd-error-type"] == "SystemExit"
    assert headers["once"]["rd-reason"] == "attempt 1 of 1 failed"
    assert all("x-death" not in one for one in headers.values())


def test_the_job_of_a_hanging_handler_runs_again(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Its thread is replaced, and its late result is refused."""
    worker, seen, release = make_worker(concurrency=1), [], threading.Event()

    @worker.handler("t", backoff=0, backoff_max=0)
    def hang(job: ReservedJob) -> None:
        seen.append((job.id, job.attempt))
        if job.id == "hangs" and job.attempt == 1:
            release.wait(patience(30))
            with pytest.raises(LeaseLost):
                job.touch()
            assert job.time_left == 0

    client.put("t", id="hangs", ttr=2)
    with working(worker):
        wait_until(lambda: ("hangs", 2) in seen)
        assert worker.stats().lost_threads == 1
        client.put("t", id="another")
        wait_until(lambda: worker.stats().counts.finished == 2)
        release.set()
        wait_until(lambda: worker.stats().lost_threads == 0)
        counts = worker.stats().counts
        assert (counts.timed_out, counts.refused_late, worker.stats().running) == (1, 1, 0)
    assert seen == [("hangs", 1), ("hangs", 2), ("another", 1)]
    records = [record for record in caplog.records if "too late" in record.message]
    assert [(record.job_id, record.topic, record.attempt) for record in records] == [  # type: ignore[attr-defined]
        ("hangs", "t", 1)
    ]


def test_a_handler_that_hangs_in_a_process_is_killed(
    client: Client, make_worker: WorkerFactory, tmp_path: Path
) -> None:
    """Its job runs again in another process."""
    worker, notes = make_worker(pool="process", concurrency=1), tmp_path / "notes"
    worker.handler("t", backoff=0, backoff_max=0)(process_handlers.hang)
    client.put("t", str(notes), ttr=1)
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1, seconds=20)
        assert worker.stats().lost_threads == 0
    first, second = (line.split() for line in notes.read_text().splitlines())
    assert (first[0], second[0]) == ("1", "2")
    for process in (first[1], first[2]):
        wait_until(lambda pid=process: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]


def test_touch_keeps_a_job_beyond_its_ttr(client: Client, make_worker: WorkerFactory) -> None:
    worker, attempts = make_worker(), list[int]()

    @worker.handler("t", ttr=TOUCHED_TTR_SECONDS)
    def touch(job: ReservedJob) -> None:
        attempts.append(job.attempt)
        began = time.monotonic()
        while time.monotonic() - began < TOUCHED_TTR_SECONDS + 0.5:
            assert 0 < job.time_left <= TOUCHED_TTR_SECONDS
            job.touch()
            time.sleep(0.2)

    client.put("t")
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1)
    assert attempts == [1]


def test_auto_touch_keeps_a_job_beyond_its_ttr(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    """After a lost connection the job is redelivered to the handler that still runs it."""
    worker, attempts, may_end = make_worker(), list[int](), threading.Event()

    @worker.handler("t", ttr=TOUCHED_TTR_SECONDS, auto_touch=True)
    def wait(job: Job) -> None:
        attempts.append(job.attempt)
        may_end.wait(patience(60))

    client.put("t")
    with working(worker):
        wait_until(lambda: attempts)
        for _ in range(4):
            cut_worker(worker)
            time.sleep(0.23)  # in different phases of its touches
        cut_at = time.monotonic()
        wait_until(lambda: time.monotonic() - cut_at > TOUCHED_TTR_SECONDS + 0.5)
        may_end.set()
        wait_until(lambda: worker.stats().counts.finished == 1)
        wait_until(lambda: len(dispatcher_of(worker).settlement.leases) == 0)
    assert attempts == [1]
    assert left_over(broker_url, client.topology) == {}


def test_a_running_job_does_not_run_twice_after_a_lost_connection(
    client: Client, make_worker: WorkerFactory, broker_url: str
) -> None:
    """This holds for jobs that still run and for jobs that ended during the outage."""
    worker, seen = make_worker(concurrency=20), []
    cut, go_on = threading.Event(), threading.Event()

    @worker.handler("t", ttr=60)
    def work(job: Job) -> None:
        seen.append(job.id)
        (cut if job.body % 2 else go_on).wait(patience(20))

    client.put_many(JobSpec("t", n, id=str(n)) for n in range(10))
    with working(worker):
        wait_until(lambda: len(seen) == 10)
        cut_worker(worker)
        cut.set()
        client.put("t", 1, id="after")
        wait_until(lambda: "after" in seen)
        go_on.set()
        wait_until(lambda: worker.stats().running == 0)
        wait_until(lambda: len(dispatcher_of(worker).settlement.leases) == 0)
    assert set(Counter(seen).values()) == {1}
    assert left_over(broker_url, client.topology) == {}


def test_a_lost_job_frees_its_slot_at_its_ttr(client: Client, make_worker: WorkerFactory) -> None:
    """Another consumer has the job, and its handler hangs: the worker continues."""
    worker, release = make_worker(concurrency=1), threading.Event()
    seen: list[str] = []

    @worker.handler("t", ttr=1)
    def hang(job: Job) -> None:
        seen.append(job.id)
        if job.id == "hangs":
            release.wait(patience(30))

    client.put("t", id="hangs")
    with working(worker):
        wait_until(lambda: "hangs" in seen)
        cut_worker(worker)
        other = client.pop("t", wait=patience(5))
        if other is not None:  # otherwise it came back to the worker, which is equally valid
            other.finish()
        client.put("t", id="next")
        wait_until(lambda: "next" in seen)
        release.set()


def test_no_topic_starves_another(client: Client, make_worker: WorkerFactory) -> None:
    """Jobs of other topics run despite a flood of jobs that do not end."""
    worker, quick_ones, most = make_worker(concurrency=4), [], Counter[str]()
    running, go_on = Counter[str](), threading.Event()

    @worker.handler("slow")
    def slow() -> None:
        running["slow"] += 1
        most["slow"] = max(most["slow"], running["slow"])
        go_on.wait(patience(20))
        running["slow"] -= 1

    @worker.handler("narrow", concurrency=1)
    def narrow() -> None:
        running["narrow"] += 1
        most["narrow"] = max(most["narrow"], running["narrow"])
        time.sleep(0.05)
        running["narrow"] -= 1

    @worker.handler("quick")
    def quick(job: Job) -> None:
        quick_ones.append(job.id)

    client.put_many(JobSpec("slow", n) for n in range(60))
    client.put_many(JobSpec("narrow", n) for n in range(10))
    with working(worker):
        wait_until(lambda: most["slow"])
        for _ in range(10):
            client.put("quick", delay=0.05)
        wait_until(lambda: len(quick_ones) == 10)
        go_on.set()
    assert most["narrow"] == 1
    assert most["slow"] >= 2


def test_hooks_and_log_records_report_a_jobs_run(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rabbitdelay.worker")
    worker = make_worker()
    seen: list[tuple[str, ...]] = []

    @worker.handler("t", backoff=0)
    def work(job: Job) -> str:
        seen.append(("handler", job.id))
        if job.id == "fails" and job.attempt == 1:
            raise ValueError("oh")
        return "done"

    worker.before(lambda job: seen.append(("before", job.id)))
    worker.on_error(lambda job, error: seen.append(("error", job.id, str(error))))
    worker.after(lambda job, value: seen.append(("after", job.id, value)))
    worker.after(lambda _job, _value: exit(1))  # noqa: PLR1722 - its error must not matter
    client.put("t", id="fails")
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1)
    first = [("before", "fails"), ("handler", "fails"), ("error", "fails", "oh")]
    assert seen == [*first, *first[:2], ("after", "fails", "done")]
    failed, finished = [
        next(record for record in caplog.records if getattr(record, "event", None) == event)
        for event in ("failed", "finished")
    ]
    assert failed.message.startswith("job fails (t), attempt 1: failed, retry in 0 s (")
    assert (failed.job_id, failed.topic, failed.attempt) == ("fails", "t", 1)  # type: ignore[attr-defined]
    assert (failed.error, failed.error_type) == ("oh", "ValueError")  # type: ignore[attr-defined]
    assert (finished.attempt, finished.lateness_ms >= 0) == (2, True)  # type: ignore[attr-defined]


def test_async_handlers_run_concurrently_and_are_cancelled_at_the_ttr(
    client: Client, make_worker: WorkerFactory
) -> None:
    """Many run on one loop; one that exceeds its TTR is cancelled."""
    worker, seen = make_worker(concurrency=30), []

    @worker.handler("t", ttr=1, backoff=0, backoff_max=0)
    async def work(body: object, job: Job) -> None:
        try:
            await asyncio.sleep(20 if body == "hangs" and job.attempt == 1 else 0.2)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        seen.append(job.id)

    client.put_many(JobSpec("t", "x") for _ in range(30))
    client.put("t", "hangs", id="hangs")
    with working(worker):
        wait_until(lambda: "hangs" in seen)
        wait_until(lambda: worker.stats().counts.finished == 31)
        assert "cancelled" in seen
        wait_until(lambda: worker.stats().lost_threads == 0)


def test_a_plain_message_is_a_job(
    *, make_worker: WorkerFactory, broker_url: str, namespace: str, make_topics: TopicsFactory
) -> None:
    worker, seen = make_worker(), []

    @worker.handler("t", ttr=7, backoff=0)
    def work(body: bytes, job: Job) -> None:
        seen.append((body, job.attempt, job.ttr.total_seconds()))
        if job.attempt == 1:
            raise ValueError

    make_topics("t")
    publish(broker_url, Topology(namespace).ready_queue("t"), (b"plain", None))
    with working(worker):
        wait_until(lambda: len(seen) == 2)
    assert seen == [(b"plain", 1, 7.0), (b"plain", 2, 7.0)]


# Stopping


def test_a_graceful_stop_finishes_running_jobs_and_returns_the_rest(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Running jobs may finish within the grace period; all other jobs go back."""
    caplog.set_level(logging.INFO, "rabbitdelay")
    grace, begun, done = patience(1), list[str](), list[str]()
    worker, may_end = make_worker(concurrency=2, prefetch=6, grace=grace), threading.Event()
    never = threading.Event()

    @worker.handler("t", ttr=120)
    def work(job: Job) -> None:
        begun.append(job.id)
        (may_end if job.id == begun[0] else never).wait(patience(20))
        done.append(job.id)

    client.put_many(JobSpec("t", n, id=str(n)) for n in range(8))
    with working(worker):
        wait_until(lambda: len(begun) == 2)
        worker.stop()
        began = time.monotonic()
        wait_until(lambda: "worker: stopping" in caplog.text)
        may_end.set()
    assert grace - 0.1 <= time.monotonic() - began < grace + patience(3)
    assert (len(begun), done) == (2, begun[:1])
    jobs = take(client, 7)
    assert {job.id for job in jobs} == {str(n) for n in range(8)} - set(done)
    assert {job.attempt for job in jobs} == {1}
    never.set()


HANDLES_ITSELF = """
import signal, sys
from tests.support.fronts import front_named
front = front_named(sys.argv[1])
worker = front.worker(sys.argv[2], namespace=sys.argv[3], stabilise_seconds=0)
@worker.handler("t")
def work(job):
    print("began", job.id, flush=True)
def theirs(*_):
    print("theirs", flush=True)
    worker.stop()
signal.signal(signal.SIGTERM, theirs)
front.run(worker, **eval(sys.argv[4]))
print("ended", signal.getsignal(signal.SIGTERM) is theirs, flush=True)
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("{}", ["theirs"]),
        ("{'handle_signals': False}", ["theirs"]),
        ("{'handle_signals': True}", []),
    ],
)
def test_a_signal_handler_of_the_program_is_kept_unless_overridden(  # noqa: PLR0917
    front: Front, client: Client, broker_url: str, namespace: str, options: str, told: list[str]
) -> None:
    client.put("t", id="job")
    with Process(HANDLES_ITSELF, front.name, broker_url, namespace, options) as process:
        process.wait_for("began job")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert process.lines == ["began job", *told, "ended True"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_without_a_handler_of_the_program_stops_the_worker(
    front: Front, client: Client, broker_url: str, namespace: str, number: signal.Signals
) -> None:
    """SIGINT works under asyncio.run too, which installs its own handler for it."""
    client.put("t", 0, id="job")
    with Process(SIGNALLED, front.name, broker_url, namespace) as process:
        process.wait_for("done job")
        process.signal(number)
        assert process.wait() == 0
    assert process.lines == ["began job", "done job", "ended"]


def test_signals_cannot_be_handled_on_another_thread(
    client: Client, make_worker: WorkerFactory
) -> None:
    """A worker on another thread runs without signal handlers unless it is asked to set them."""
    client.put("t")
    told, worker = make_worker(), make_worker()
    for one in (told, worker):
        one.handler("t")(_nothing)
    with pytest.raises(InvalidConfiguration, match="main thread"):  # noqa: SIM117 - its end raises
        with working(told, handle_signals=True):
            pass
    with working(worker):
        wait_until(lambda: worker.last_stats and worker.last_stats.counts.finished == 1)


SIGNALLED = """
import logging, sys, time
logging.basicConfig(level=logging.INFO)
from tests.support.fronts import front_named
front = front_named(sys.argv[1])
worker = front.worker(sys.argv[2], namespace=sys.argv[3], stabilise_seconds=0, grace=300)
@worker.handler("t")
def work(job):
    print("began", job.id, flush=True)
    time.sleep(float(job.body))
    print("done", job.id, flush=True)
front.run(worker)
print("ended", flush=True)
"""


def test_the_first_signal_drains_a_worker_and_the_second_ends_it(
    front: Front, client: Client, broker_url: str, namespace: str
) -> None:
    """The first lets handlers finish; the second ends the worker and gives running jobs back."""
    client.put("t", 1.5, id="short")
    with Process(SIGNALLED, front.name, broker_url, namespace) as process:
        process.wait_for("began short")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert process.lines == ["began short", "done short", "ended"]
    client.put("t", 600, id="long")
    with Process(SIGNALLED, front.name, broker_url, namespace) as process:
        process.wait_for("began long")
        process.signal(signal.SIGTERM)
        process.wait_for_error("worker: stopping")  # two simultaneous signals count as one
        process.signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait() == 0
    assert time.monotonic() - began < patience(8)
    assert process.lines == ["began long", "ended"]
    job = client.pop("t", wait=patience(5))
    assert job is not None
    assert (job.id, job.attempt) == ("long", 1)


def test_a_run_ends_after_max_jobs_or_when_its_topics_are_empty(
    client: Client, make_worker: WorkerFactory
) -> None:
    done: list[str] = []

    def make() -> Worker:
        worker = make_worker(concurrency=3)

        @worker.handler("t", backoff=0)
        def work(job: Job) -> None:
            if job.id == "7" and job.attempt < 3:
                raise ValueError
            done.append(job.id)

        worker.handler("u")(lambda job: done.append(job.id))
        return worker

    client.put_many(JobSpec("t", id=str(n)) for n in range(20))
    make().run(max_jobs=5)
    assert 3 <= len(done) <= 5
    client.put("u", id="u")
    make().run(until_empty=True)
    assert sorted(done) == sorted([*(str(n) for n in range(20)), "u"])


# Queues


def test_a_worker_that_may_not_declare_raises_for_a_missing_topic(
    client: Client, make_worker: WorkerFactory
) -> None:
    """The missing topic alone raises; a worker of existing topics runs."""
    client.put("there")
    worker = make_worker(declare=False)
    worker.handler("there")(lambda _: None)
    worker.handler("missing")(lambda _: None)
    with pytest.raises(TopologyMissing, match="missing"):
        worker.run()
    fine = make_worker(declare=False)
    fine.handler("there")(lambda _: None)
    fine.run(until_empty=True)


def test_a_worker_declares_a_deleted_ready_queue_again(
    client: Client, make_worker: WorkerFactory, broker_url: str, namespace: str
) -> None:
    """The queue has one consumer, and a job that ran during the deletion does not delay others."""
    worker, seen = make_worker(concurrency=2), []

    @worker.handler("t", ttr=30)
    def work(job: Job) -> None:
        seen.append(job.id)
        time.sleep(0.5 if job.id == "runs" else 0)

    client.put("t", id="runs")
    with working(worker):
        wait_until(lambda: seen == ["runs"])
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            connection.channel().queue_delete(Topology(namespace).ready_queue("t"))
        cut_worker(worker)  # so that the reconnect subscribes, and the timer again
        wait_until(lambda: client.put("t", id="again").id in seen, seconds=15)
        wait_until(lambda: worker.stats().running == 0)
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            method = connection.channel().queue_declare(
                Topology(namespace).ready_queue("t"), passive=True
            )
        assert method.method.consumer_count == 1


def test_a_lost_suspect_does_not_block_its_worker(
    *, make_worker: WorkerFactory, broker_url: str, namespace: str, make_topics: TopicsFactory
) -> None:
    """The suspect waits to run alone when the connection is lost. Other jobs run afterwards."""
    worker, seen, release = make_worker(concurrency=2), [], threading.Event()

    @worker.handler("t", ttr=30)
    def work(body: bytes) -> None:
        seen.append(body)
        if body == b"blocks":
            release.wait(patience(20))

    make_topics("t")
    queue = Topology(namespace).ready_queue("t")
    suspect = pika.BasicProperties(headers={"x-delivery-count": 5}, message_id="suspect")
    publish(broker_url, queue, (b"blocks", None))
    with working(worker):
        wait_until(lambda: seen == [b"blocks"])
        publish(broker_url, queue, (b"suspect", suspect))
        dispatcher = dispatcher_of(worker)
        wait_until(lambda: len(dispatcher.settlement.leases) == 2)
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            channel = connection.channel()
            channel.basic_consume(queue, lambda *_: None, auto_ack=True)
            cut_worker(worker)
            wait_until(lambda: len(dispatcher.settlement.leases) == 0)
            release.set()
            connection.sleep(1.2)  # beyond a suspect's patience
        publish(broker_url, queue, (b"next", None))
        wait_until(lambda: b"next" in seen)
        assert worker_connector(worker)._attempts == 1


def test_a_worker_leaves_no_threads_behind(client: Client, make_worker: WorkerFactory) -> None:
    """This holds for event loops and connections too, even after handlers timed out."""
    before = set(threading.enumerate())
    worker, release = make_worker(concurrency=4), threading.Event()

    @worker.handler("t", max_attempts=1)
    def work(body: int) -> None:
        release.wait(patience(20) if body == 0 else 0)

    @worker.handler("u", max_attempts=1)
    async def wait(body: int) -> None:
        await asyncio.sleep(patience(20) if body == 0 else 0)

    specs = (JobSpec(topic, n, ttr=60 if n else 2) for n in range(50) for topic in ("t", "u"))
    client.put_many(specs)
    client.pop("nothing")
    before |= set(threading.enumerate())
    worker.run(until_empty=True)
    counts = worker.stats().counts
    assert (counts.finished, counts.timed_out, counts.buried) == (98, 2, 2)
    release.set()
    wait_until(lambda: not set(threading.enumerate()) - before)


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_job_that_exceeds_its_ttr_is_reported_as_timed_out(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """To hooks as TimedOut, in the log as buried, and to a wait for its response as an error."""
    worker = make_worker()
    told: list[BaseException] = []
    ended = list[str]()

    def hang(job: ReservedJob) -> str:
        if job.id == "last":
            return "in time"
        wait_until(lambda: job.time_left == 0)
        time.sleep(0.1)
        ended.append(job.id)
        return "too late"

    async def hang_async(job: ReservedJob) -> str:
        if job.id == "last":
            return "in time"
        try:
            await asyncio.sleep(patience(60))
        finally:
            ended.append(job.id)
        return "too late"

    worker.handler("t", max_attempts=1)(hang if kind == "thread" else hang_async)
    worker.on_error(lambda _job, error: told.append(error))
    job = client.put("t", ttr=1, reply=True)
    with working(worker):
        with pytest.raises(NoResponse, match="attempt 1 of 1 failed: not settled within its ttr"):
            client.response(job, wait=patience(15))
        wait_until(lambda: told and ended)
        last = client.response(client.put("t", id="last", reply=True), wait=patience(10))
        assert last is not None
        assert last.body == "in time"
        assert client.response(job, wait=0.1) is None, "the job's only response was an error"
    assert [type(error) for error in told] == [TimedOut]
    (record,) = [one for one in caplog.records if getattr(one, "event", None) == "buried"]
    assert (record.levelname, record.job_id) == ("ERROR", job.id)  # type: ignore[attr-defined]


def test_invalid_hooks_and_handlers_are_refused(make_worker: WorkerFactory) -> None:
    worker = make_worker()
    for register, wrong in (
        (worker.before, lambda: None),
        (worker.after, lambda _job: None),
        (worker.on_error, lambda _job: None),
    ):
        with pytest.raises(InvalidConfiguration, match=r"hook .* must take the job"):
            register(wrong)
    with pytest.raises(InvalidConfiguration, match="requires a topic"):
        worker.handler(_nothing)  # type: ignore[arg-type]  # without parentheses
    with pytest.raises(InvalidConfiguration, match="grace"):
        make_worker(grace="5s")
    worker.handler("t")(_nothing)
    with working(worker):
        wait_until(lambda: worker.last_stats)
        with pytest.raises(InvalidConfiguration, match="already running"):
            worker.run()


def test_a_job_whose_finish_was_refused_runs_again(
    client: Client, make_worker: WorkerFactory
) -> None:
    """A handler that learns that the job is lost may roll back its work, so the job must rerun."""
    worker = make_worker()
    committed: list[int] = []
    runs: list[int] = []

    @worker.handler("t")
    def work(job: ReservedJob) -> None:
        runs.append(1)
        if len(runs) == 1:
            cut_worker(worker)
            wait_until(lambda: job.time_left == 0)
        job.finish()  # raises, and the transaction is rolled back
        committed.append(1)

    client.put("t")
    with working(worker):
        wait_until(lambda: committed)
    assert (len(runs), len(committed)) == (2, 1)


def test_a_worker_can_run_repeatedly(client: Client, make_worker: WorkerFactory) -> None:
    worker = make_worker(concurrency=50)
    done: list[object] = []

    @worker.handler("t")
    def collect(body: object) -> None:
        done.append(body)

    client.put_many(JobSpec("t", n) for n in range(8))
    for count in range(1, 5):
        worker.run(max_jobs=1)
        assert len(done) == count
    worker.run(until_empty=True)
    assert sorted(map(str, done)) == [str(n) for n in range(8)]


def test_a_worker_for_one_job_does_not_fetch_others(
    client: Client, make_worker: WorkerFactory
) -> None:
    """RabbitMQ 3.10 counts returned deliveries, so twenty such workers would bury all others."""
    client.put_many(JobSpec("t", n) for n in range(30))
    for _ in range(5):
        worker = make_worker(concurrency=50)
        worker.handler("t")(_nothing)
        worker.run(max_jobs=1)
    rest = take(client, 25)
    assert all(job.redeliveries == 0 for job in rest)
    for job in rest:
        job.finish()


def test_a_new_responses_queue_does_not_use_up_the_ttr(
    make_client: ClientFactory, make_worker: WorkerFactory
) -> None:
    worker = make_worker(stabilise_seconds=STABILISE_SECONDS)
    attempts: list[int] = []

    @worker.handler("t", keep_responses=True)
    def work(job: ReservedJob) -> int:
        attempts.append(job.attempt)
        return 1

    make_client().put("t", ttr=STABILISE_SECONDS - 1)
    with working(worker):
        wait_until(lambda: worker.last_stats and worker.stats().counts.finished == 1)
    assert attempts == [1]


def _runs_of(topic: str) -> list[Run]:
    """Return the live `Run` objects of one topic: hanging handlers of other tests keep theirs."""
    runs = [one for one in gc.get_objects() if isinstance(one, Run)]
    return [run for run in runs if run.handler.topic == topic]


def test_auto_touch_releases_finished_jobs(client: Client, make_worker: WorkerFactory) -> None:
    worker = make_worker()
    worker.handler("renewed", auto_touch=True)(_nothing)
    client.put_many(JobSpec("renewed", ttr=3600) for _ in range(50))
    with working(worker):
        wait_until(lambda: worker.last_stats and worker.stats().counts.finished == 50)
        wait_until(lambda: gc.collect() >= 0 and not _runs_of("renewed"))


def test_a_worker_without_handlers_does_not_run(make_worker: WorkerFactory) -> None:
    with pytest.raises(InvalidConfiguration, match="no handler"):
        make_worker().run()


def test_the_stats_of_a_worker_that_has_not_run_are_zero(make_worker: WorkerFactory) -> None:
    stats = make_worker().stats()
    assert (stats.counts.finished, stats.counts.lateness_p99_ms) == (0, 0)
    assert (stats.running, stats.lost_threads) == (0, 0)


def test_an_orderly_stop_logs_no_warning(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that still runs finishes within the grace period."""
    worker, may_end = make_worker(), threading.Event()

    @worker.handler("t")
    def work(_job: Job) -> None:
        may_end.wait(patience(20))

    client.put("t")
    caplog.set_level(logging.INFO, "rabbitdelay")
    with working(worker):
        wait_until(lambda: worker.stats().running == 1)
        worker.stop()
        wait_until(lambda: any("worker: stopping" in one.getMessage() for one in caplog.records))
        may_end.set()
    ours = [one for one in caplog.records if one.name.startswith("rabbitdelay")]
    assert [one.getMessage() for one in ours if one.levelno >= logging.WARNING] == []
    assert ours[-1].getMessage() == "worker: stopped"
