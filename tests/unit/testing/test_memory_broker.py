"""The broker in memory, as a test of an application uses it."""

import gc
import threading
import time
import weakref
from datetime import UTC, datetime, timedelta

import pytest

from rabbitdelay import BrokerBlocked, Bury, Client, Job, JobSpec, ReservedJob, Retry, Worker
from rabbitdelay.errors import RabbitDelayError, TimedOut
from rabbitdelay.testing import MemoryBroker
from tests.support.patience import patience

START = datetime(2030, 1, 1, tzinfo=UTC)


class Shop:
    """An application with a worker that it has made itself, for RabbitMQ."""

    def __init__(self) -> None:
        self.worker = Worker("amqp://nowhere.invalid")
        self.closed: list[int] = []
        self.worker.handler("orderclose")(self.close)

    def close(self, body: dict[str, int]) -> None:
        self.closed.append(body["order"])


def test_an_unpaid_order_is_closed() -> None:
    shop = Shop()
    with MemoryBroker() as broker:
        client, _ = broker.client(), broker.run(shop.worker)
        client.put("orderclose", {"order": 42}, delay=1800)
        broker.advance(minutes=29)
        assert shop.closed == []
        broker.advance(minutes=1)
        assert shop.closed == [42]


def test_a_paid_order_is_not_closed() -> None:
    shop = Shop()
    with MemoryBroker() as broker:
        client, _ = broker.client(), broker.run(shop.worker)
        job = client.put("orderclose", {"order": 42}, delay=1800)
        client.delete(job)
        broker.advance(hours=1)
    assert shop.closed == []


def test_jobs_are_due_in_their_order_and_at_their_times() -> None:
    seen = list[tuple[str, datetime]]()
    worker = Worker()
    with MemoryBroker(start=START) as broker:
        worker.handler("t")(lambda job: seen.append((job.id, broker.now)))
        client, _ = broker.client(), broker.run(worker)
        for name, minutes in (("c", 90), ("a", 1), ("b", 59)):
            client.put("t", id=name, delay=timedelta(minutes=minutes))
        broker.advance(timedelta(days=1))
        assert broker.now == START + timedelta(days=1)
    times = [START + timedelta(minutes=minutes) for minutes in (1, 59, 90)]
    assert seen == list(zip("abc", times, strict=True))


def test_what_waits_is_listed_by_its_due_time() -> None:
    with MemoryBroker(start=START) as broker:
        client = broker.client()
        for name, delay in (("late", 3600), ("now", 0), ("soon", 60), ("deleted", 60)):
            client.put("t", id=name, delay=delay)
        client.put("other", delay=60)
        client.delete("deleted")
        assert [job.id for job in broker.jobs("t")] == ["now", "soon", "late"]
        assert broker.jobs("t")[1].due == START + timedelta(seconds=60)
        popped = client.pop("t")
        assert popped is not None
        assert [job.id for job in broker.jobs("t")] == ["now", "soon", "late"]
        popped.finish()
        assert [job.id for job in broker.jobs("t")] == ["soon", "late"]
        assert broker.jobs("unknown") == []


def test_a_wait_moves_the_clock_and_takes_no_time() -> None:
    began = time.monotonic()
    with MemoryBroker(start=START) as broker:
        client = broker.client()
        client.put("t", delay=3600)
        assert client.pop("t", wait=1800) is None
        assert broker.now == START + timedelta(seconds=1800)
        assert client.pop("t", wait=7200) is not None
        assert broker.now == START + timedelta(seconds=3600)
    assert time.monotonic() - began < 1800


def test_an_error_of_a_handler_is_raised_in_the_test() -> None:
    worker = Worker()

    @worker.handler("t")
    def fail() -> None:
        raise ZeroDivisionError

    with MemoryBroker() as broker:
        client, _ = broker.client(), broker.run(worker)
        client.put("t")
        with pytest.raises(ZeroDivisionError):
            broker.run_until_idle()


def test_an_error_that_no_verb_has_raised_is_raised_at_the_end() -> None:
    worker = Worker()

    @worker.handler("t")
    def fail() -> None:
        raise ZeroDivisionError

    def leave() -> None:
        with MemoryBroker() as broker:
            client, _ = broker.client(), broker.run(worker)
            client.put("t", delay=1)
            client.pop("another", wait=2)

    with pytest.raises(ZeroDivisionError):
        leave()


def test_a_job_is_retried_with_its_backoff_and_then_buried() -> None:
    attempts = list[datetime]()
    worker = Worker()
    with MemoryBroker(start=START, raise_errors=False) as broker:

        @worker.handler("t", max_attempts=3, backoff=[60, 600])
        def fail() -> None:
            attempts.append(broker.now)
            raise ZeroDivisionError("no")

        client, _ = broker.client(), broker.run(worker)
        client.put("t", id="a")
        broker.advance(hours=1)
        (buried,) = broker.buried("t")
        assert (buried.id, buried.attempt, buried.error_type) == ("a", 3, "ZeroDivisionError")
        assert broker.jobs("t") == []
    first, second, third = attempts
    assert first == START
    assert timedelta(seconds=60) <= second - first < timedelta(seconds=90)
    assert timedelta(seconds=600) <= third - second < timedelta(seconds=900)


@pytest.mark.parametrize("error", [Bury("no"), Retry("not yet", delay=60)], ids=["Bury", "Retry"])
def test_what_a_handler_asks_for_is_not_an_error(error: Exception) -> None:
    worker = Worker()

    @worker.handler("t")
    def ask(job: ReservedJob) -> None:
        if job.attempt == 1:
            raise error

    with MemoryBroker() as broker:
        client, _ = broker.client(), broker.run(worker)
        client.put("t")
        broker.advance(minutes=2)
        assert broker.jobs("t") == []


def test_a_job_that_exceeds_its_ttr_is_taken_away() -> None:
    attempts = list[int]()
    worker = Worker()
    with MemoryBroker(raise_errors=False) as broker:

        @worker.handler("t", ttr=30)
        def take_long(job: ReservedJob) -> None:
            attempts.append(job.attempt)
            broker.sleep(20 if job.attempt == 2 else 40)

        client, _ = broker.client(), broker.run(worker)
        client.put("t")
        broker.advance(seconds=29)
        assert attempts == [1]
        broker.advance(minutes=1)
        assert attempts == [1, 2]
        assert broker.jobs("t") == []


def test_a_ttr_that_expires_is_an_error_of_the_handler() -> None:
    """The hooks run on another thread, and may take a while."""
    worker = Worker()
    with MemoryBroker() as broker:

        @worker.on_error
        def take_a_while(_job: Job, _error: BaseException) -> None:
            time.sleep(0.2)

        @worker.handler("t", ttr=30, max_attempts=1)
        def take_long() -> None:
            broker.sleep(40)

        client, _ = broker.client(), broker.run(worker)
        client.put("t")
        with pytest.raises(TimedOut):
            broker.advance(seconds=31)


def test_a_hook_may_wait_for_the_broker() -> None:
    """Also the hook that is told of a ttr, which runs on a thread of its own."""
    worker = Worker()
    with MemoryBroker(raise_errors=False) as broker:

        @worker.on_error
        def apologise(_job: Job, error: BaseException) -> None:
            worker.client.put("mail", type(error).__name__)

        @worker.handler("t", ttr=30, max_attempts=1)
        def take_long() -> None:
            broker.sleep(40)

        client, _ = broker.client(), broker.run(worker)
        client.put("t")
        broker.slow(0.1)
        broker.advance(seconds=35)
        assert [job.body for job in broker.jobs("mail")] == ["TimedOut"]


def test_a_handler_may_put_further_jobs() -> None:
    seen = list[tuple[int, datetime]]()
    worker = Worker()
    with MemoryBroker(start=START) as broker:

        @worker.handler("t")
        def chain(body: int) -> None:
            seen.append((body, broker.now))
            if body:
                worker.client.put("t", body - 1, delay=60)

        broker.run(worker)
        broker.client().put("t", 2)
        broker.advance(minutes=2)
    assert seen == [(2 - n, START + timedelta(minutes=n)) for n in range(3)]


def test_handlers_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3)
    worker = Worker(concurrency=3)
    worker.handler("t")(lambda: meeting.wait(30) and None)
    with MemoryBroker() as broker:
        broker.run(worker)
        broker.client().put_many(JobSpec("t") for _ in range(3))
        broker.run_until_idle()
        assert broker.jobs("t") == []


def test_some_jobs_run_twice() -> None:
    seen = list[str]()
    worker = Worker()
    worker.handler("t")(lambda job: seen.append(job.id))
    with MemoryBroker(duplicates=0.5) as broker:
        broker.run(worker)
        broker.client().put_many(JobSpec("t", id=str(n)) for n in range(100))
        broker.run_until_idle()
    assert len(set(seen)) == 100
    assert 120 < len(seen) < 180


def test_clients_and_workers_survive_a_cut() -> None:
    shop = Shop()
    with MemoryBroker() as broker:
        client, _ = broker.client(), broker.run(shop.worker)
        client.put("orderclose", {"order": 1}, delay=60)
        broker.cut()
        client.put("orderclose", {"order": 2}, delay=60)
        broker.cut()
        broker.advance(minutes=2)
    assert sorted(shop.closed) == [1, 2]


def test_a_broker_that_is_blocked_takes_no_jobs() -> None:
    with MemoryBroker(start=START) as broker:
        client = broker.client(timeout=10)
        client.connect()
        with broker.block(), pytest.raises(BrokerBlocked):
            client.put("t")
        assert broker.now >= START + timedelta(seconds=10)
        client.put("t", id="after")
        assert "after" in [job.id for job in broker.jobs("t")]


def test_a_client_of_the_application_is_attached_until_the_end() -> None:
    client = Client("amqp://nowhere.invalid", connect_timeout=0.1)
    with MemoryBroker() as broker:
        broker.attach(client)
        client.put("t")
        assert len(broker.jobs("t")) == 1
    with pytest.raises(RabbitDelayError):
        client.put("t")


def test_a_worker_of_the_application_runs_on_several_brokers_in_turn() -> None:
    shop = Shop()
    for number in range(3):
        with MemoryBroker() as broker:
            broker.run(shop.worker)
            broker.client().put("orderclose", {"order": number})
            broker.run_until_idle()
    assert shop.closed == [0, 1, 2]


def test_a_worker_runs_on_the_next_broker_after_a_broker_was_closed_twice() -> None:
    shop = Shop()
    for number in range(2):
        with MemoryBroker() as broker:
            broker.run(shop.worker)
            broker.client().put("orderclose", {"order": number})
            broker.run_until_idle()
            broker.close()
    assert shop.closed == [0, 1]


def test_a_worker_keeps_only_the_last_of_its_brokers() -> None:
    shop, brokers = Shop(), list[weakref.ref[MemoryBroker]]()
    for _ in range(3):
        with MemoryBroker() as broker:
            broker.run(shop.worker)
        brokers.append(weakref.ref(broker))
    gc.collect()
    assert [reference() for reference in brokers[:-1]] == [None, None]


def test_a_handler_that_hangs_fails_the_test() -> None:
    release = threading.Event()
    worker = Worker()
    worker.handler("t")(lambda: release.wait(60) and None)
    with MemoryBroker(handler_seconds=patience(0.5)) as broker:
        broker.run(worker)
        broker.client().put("t")
        with pytest.raises(RabbitDelayError, match="a handler has been running for"):
            broker.run_until_idle()
        release.set()


def test_many_jobs_of_a_month() -> None:
    seen = list[str]()
    worker = Worker()

    def note(job: Job) -> None:
        seen.append(job.id)

    worker.handler("t")(note)
    with MemoryBroker() as broker:
        broker.run(worker)
        specs = (JobSpec("t", id=str(n), delay=timedelta(minutes=40 * n)) for n in range(1_000))
        broker.client().put_many(specs)
        broker.advance(days=30)
        assert broker.jobs("t") == []
    assert seen == [str(n) for n in range(1_000)]
