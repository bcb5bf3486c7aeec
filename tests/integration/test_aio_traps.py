"""The asyncio front end alone: cancellation, event loops, and the known traps of aio-pika.

Publishes during an outage, consumers cancelled by the broker, alarms and the like are tested for
both front ends in tests/conformance.
"""

import asyncio
import gc
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Self

import aio_pika
import pytest
from yarl import URL

from rabbitdelay import Client as SyncClient
from rabbitdelay import (
    ClientClosed,
    ConnectionFailed,
    InvalidConfiguration,
    JobSpec,
    LeaseLost,
    RabbitDelayError,
)
from rabbitdelay.aio import Client, ReservedJob, Worker
from rabbitdelay.aio.driver import transport
from rabbitdelay.engine.connection import Connector
from tests.conftest import ReceiverFactory, TopicsFactory
from tests.support.client_options import CLIENT_OPTIONS, WORKER_OPTIONS
from tests.support.jobs.connections import cut
from tests.support.patience import patience
from tests.support.programs.script import Process

Main = Callable[[], Coroutine[Any, Any, None]]
New = Callable[..., Client]
NewWorker = Callable[..., Worker]


def run(main: Main, seconds: float = 60) -> None:
    """Run a test on its own event loop; assert that it leaves no tasks and no failures behind."""
    failures: list[str] = []

    async def guarded() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(str(context)))
        async with asyncio.timeout(patience(seconds)):
            await main()
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, what="tasks are left")

    asyncio.run(guarded())
    gc.collect()
    assert failures == []


async def until(condition: Callable[[], object], *, seconds: float = 10, what: str = "") -> None:
    """Wait until the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        await asyncio.sleep(0.01)


@pytest.fixture
def new(broker_url: str, namespace: str) -> New:
    return partial(Client, broker_url, namespace=namespace, **CLIENT_OPTIONS)


@pytest.fixture
def new_worker(broker_url: str, namespace: str) -> NewWorker:
    return partial(Worker, broker_url, namespace=namespace, **WORKER_OPTIONS)


@pytest.fixture
def other(broker_url: str, namespace: str) -> Any:  # noqa: ANN401 - a generator's
    """A second client, which uses the sync front end."""
    with SyncClient(broker_url, namespace=namespace, **CLIENT_OPTIONS) as client:
        yield client


@asynccontextmanager
async def running(worker: Worker, **options: Any) -> AsyncIterator[Worker]:  # noqa: ANN401 - passed on
    """Run a worker inside the block."""
    task = asyncio.create_task(worker.run(**options))
    try:
        await until(lambda: worker.last_stats is not None or task.done())
        yield worker
    finally:
        worker.stop()
        await task


async def pop(client: Client, topic: str = "t", wait: float = 10) -> ReservedJob:
    job = await client.pop(topic, wait=patience(wait))
    assert job is not None
    return job


async def drained(client: Client) -> list[str]:
    """Pop and finish all ready jobs of `t`, until one that is put last; return their ids."""
    last, ids = (await client.put("t")).id, list[str]()
    while last not in ids:
        job = await pop(client)
        await job.finish()
        ids.append(job.id)
    return ids[:-1]


def consumer_connector(client: Client) -> Connector:
    """Return the connection on which a client receives jobs."""
    assert client._engine.connections._sides.opened is not None
    return client._engine.connections._sides.opened.consumer._connector


def publisher_connector(client: Client) -> Connector:
    """Return the connection on which a client puts."""
    assert client._engine.connections._publishers.opened is not None
    return client._engine.connections._publishers.opened._connector


def is_idle(client: Client) -> bool:
    """Return whether no put is in flight and no job is leased."""
    connections = client._engine.connections
    leased = (
        0
        if connections._sides.opened is None
        else len(connections._sides.opened.consumer.settlement.leases)
    )
    return puts_in_flight(client) == 0 and leased == 0


def puts_in_flight(client: Client) -> int:
    """Return the number of puts in the client's window."""
    publisher = client._engine.connections._publishers.opened
    return 0 if publisher is None else publisher.window.puts


def waits(client: Client) -> bool:
    """Return whether a pop of the client waits at the broker."""
    front = client._engine.connections._sides.opened
    pops = list(front.popper.calls) if front is not None else []
    return any(request.channel is not None and request.channel._consumers for request in pops)


# Reconnects


def test_a_job_popped_before_a_reconnect_cannot_be_settled(new: New, other: SyncClient) -> None:
    """Settling raises LeaseLost, and does not ack the same delivery tag on the new channel."""

    async def main() -> None:
        async with new() as client:
            await client.put("t", id="a", ttr=60)
            before = await pop(client)
            cut(consumer_connector(client))
            again = await asyncio.to_thread(other.pop, "t", wait=patience(10))
            assert again is not None
            assert (again.id, again.attempt) == ("a", 1)
            await client.put("t", id="b", ttr=60)
            after = await pop(client)
            assert after._lease.tag == before._lease.tag
            acts: list[Callable[[], Coroutine[Any, Any, None]]] = [
                before.finish,
                before.touch,
                before.release,
                partial(before.bury, "too late"),
            ]
            for act in acts:
                with pytest.raises(LeaseLost, match="connection"):
                    await act()
            assert await client.pop("t") is None
            await after.touch()
            assert consumer_connector(client)._attempts == 1, (
                "a wrong ack would have closed the channel"
            )
            await after.finish()
            again.finish()
            assert await drained(client) == []

    run(main)


def test_puts_by_many_tasks_survive_lost_connections(new: New, receive: ReceiverFactory) -> None:
    ids: list[str] = []

    async def main() -> None:
        async with new() as client:
            await client.put("t")

            async def put(n: int) -> None:
                ids.append((await client.put("t", n, delay=0.05)).id)

            async with asyncio.TaskGroup() as group:
                for n in range(1_000):
                    group.create_task(put(n))
                    if n % 250 == 100:
                        await until(lambda: cut(publisher_connector(client)))
                        await asyncio.sleep(0)

    run(main)
    assert len(ids) == 1_000
    receive("t").wait_for(*ids)


# Cancellation


def test_a_client_survives_cancelled_puts(
    broker_url: str, namespace: str, receive: ReceiverFactory
) -> None:
    """The job may arrive nevertheless: here it was sent, and waits for a new queue."""

    async def main() -> None:
        async with Client(broker_url, namespace=namespace, stabilise_seconds=patience(2)) as client:
            tasks = [
                asyncio.create_task(client.put("t", id="awaited")),
                client.put_nowait("t", id="task"),
            ]
            await until(lambda: puts_in_flight(client) == 2)
            await asyncio.sleep(0.3)
            for task in tasks:
                assert not task.done()
                task.cancel()
            for task in tasks:
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.put("u", id="timed out")
            assert (await client.put("t", id="next")).id == "next"
            await until(lambda: is_idle(client))

    run(main)
    receive("t").wait_for("awaited", "task", "next")
    receive("u").wait_for("timed out")


def test_a_task_that_is_cancelled_while_connecting_does_not_affect_others(new: New) -> None:
    async def main() -> None:
        client = new()
        puts = [client.put_nowait("t", n) for n in range(3)]
        pops = [asyncio.create_task(client.pop("u", wait=0.5)) for _ in range(2)]
        await asyncio.sleep(0)
        puts[0].cancel()
        while client._engine.connections._sides._one is None:  # noqa: ASYNC110 - for a moment
            await asyncio.sleep(0)
        pops[0].cancel()
        assert [(await one).body for one in puts[1:]] == [1, 2]
        assert await pops[1] is None
        await client.close()

    run(main)


def test_a_client_can_be_closed_while_it_connects(new: New) -> None:
    """Waiting calls raise, and no connection is left behind."""

    async def main() -> None:
        client = new()
        put = client.put_nowait("t")
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(RabbitDelayError, match="closed"):
            await put

    run(main)


def test_a_cancelled_pop_takes_no_job(
    new: New, other: SyncClient, make_topics: TopicsFactory
) -> None:
    make_topics("t")

    async def main() -> None:
        async with new() as client:
            waiting = asyncio.create_task(client.pop("t", wait=None))
            await until(lambda: waits(client))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            other.put("t", id="a", ttr=60)
            job = await asyncio.to_thread(other.pop, "t", wait=patience(5))
            assert job is not None
            assert (job.id, job.redeliveries) == ("a", 0)
            job.finish()
            assert is_idle(client)
            assert await drained(client) == []

    run(main)


def test_pops_cancelled_at_any_moment_do_not_lose_jobs(new: New) -> None:
    """A job delivered to a cancelled pop goes to the next pop, and does not wait for its TTR."""
    draw, found = random.Random(5), set[int]()

    async def taken(client: Client) -> None:
        for job in await client.pop("t", max=3, wait=1):
            await job.finish()
            found.add(job.body)

    async def main() -> None:
        async with new() as client, new() as putter:
            await putter.put_many(JobSpec("t", n, ttr=60) for n in range(60))
            for _ in range(60):
                task = asyncio.create_task(taken(client))
                await asyncio.sleep(draw.random() * 0.01)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            while len(found) < 60:
                before = len(found)
                await taken(client)
                assert len(found) > before, f"{60 - before} are missing"
            await until(lambda: is_idle(client))

    run(main)


def test_a_cancelled_put_many_publishes_the_jobs_it_has_taken(
    new: New, receive: ReceiverFactory
) -> None:
    """The client remains usable."""
    taken: list[str] = []

    async def specs() -> AsyncIterator[JobSpec]:
        while True:
            taken.append(str(len(taken)))
            yield JobSpec("t", id=taken[-1])
            await asyncio.sleep(0.001)

    async def main() -> None:
        async with new() as client:
            task = asyncio.create_task(client.put_many(specs()))
            await until(lambda: len(taken) > 50)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.put("t", id="next")
            await until(lambda: is_idle(client))

    run(main)
    receive("t").wait_for(*taken[:-1], "next")


def test_put_many_accepts_an_asynchronous_generator(new: New, receive: ReceiverFactory) -> None:
    """The generator is not read further ahead than the window, and other tasks get their turn."""
    confirmed, furthest, turns = 0, 0, 0

    def note(_job: object) -> None:
        nonlocal confirmed
        confirmed += 1

    async def specs() -> AsyncIterator[JobSpec]:
        nonlocal furthest
        for n in range(2_000):
            furthest = max(furthest, n - confirmed)
            yield JobSpec("t", n)

    async def main() -> None:
        nonlocal turns
        async with new(window=50) as client:
            task = asyncio.create_task(client.put_many(specs(), on_confirmed=note))
            while not task.done():
                turns += 1
                await asyncio.sleep(0)
            assert await task == 2_000
            assert await client.delete_many(name async for name in names()) == 3

    async def names() -> AsyncIterator[str]:
        for name in ("a", "b", "c"):
            yield name

    run(main)
    assert furthest <= 50
    assert turns > 20
    receive("t").wait_for_count(2_000)


# Handlers


def test_a_handler_is_cancelled_at_the_ttr(new: New, new_worker: NewWorker) -> None:
    """The handler sees CancelledError and may clean up. The job goes back with its next attempt."""
    worker, seen = new_worker(), list[object]()

    @worker.handler("t", ttr=1, backoff=0, backoff_max=0)
    async def hang(job: ReservedJob) -> None:
        seen.append(job.attempt)
        if job.attempt > 1:
            return
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            seen.append("cleaned up")
            with pytest.raises(LeaseLost, match="ttr"):
                await job.finish()
            raise

    async def main() -> None:
        async with new() as client, running(worker):
            await client.put("t")
            await until(lambda: worker.stats().counts.finished == 1)
            assert worker.stats().counts.timed_out == 1
            await until(lambda: worker.stats().lost_threads == 0)

    run(main)
    assert seen[0] == 1
    assert sorted(map(str, seen)) == ["1", "2", "cleaned up"]


def test_a_handler_that_ignores_its_cancellation_is_abandoned(
    new: New, new_worker: NewWorker
) -> None:
    """The handler counts as lost. Its job runs again, and its late result is refused."""
    worker, let_go = new_worker(concurrency=1), asyncio.Event()
    seen: list[int] = []

    @worker.handler("t", ttr=1, backoff=0, backoff_max=0)
    async def swallow(job: ReservedJob) -> None:
        seen.append(job.attempt)
        if job.attempt > 1:
            return
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        await let_go.wait()

    async def main() -> None:
        async with new() as client, running(worker):
            await client.put("t")
            await until(lambda: worker.stats().counts.finished == 1)
            assert worker.stats().lost_threads == 1
            let_go.set()
            await until(lambda: worker.stats().lost_threads == 0)
            assert worker.stats().counts.refused_late == 1

    run(main)
    assert seen == [1, 2]


@pytest.mark.parametrize(("seconds", "heartbeat"), [(1.3, 30), (3.5, 1)])
def test_a_worker_survives_a_handler_that_blocks_the_loop(
    new: New, broker_url: str, namespace: str, seconds: float, heartbeat: int
) -> None:
    """The handler blocks beyond its TTR and the heartbeat, and its finish is refused."""
    worker = Worker(f"{broker_url}?heartbeat={heartbeat}", namespace=namespace, stabilise_seconds=0)
    seen: list[tuple[str, int]] = []

    @worker.handler("t", ttr=1, backoff=0, backoff_max=0)
    async def block(job: ReservedJob) -> None:
        seen.append((job.id, job.attempt))
        if len(seen) == 1:
            time.sleep(seconds)  # noqa: ASYNC251 - on purpose

    async def main() -> None:
        async with new() as client, running(worker):
            await client.put("t", id="blocks")
            await until(lambda: worker.stats().counts.finished >= 1, seconds=20)
            await client.put("t", id="next")
            await until(lambda: ("next", 1) in seen, seconds=20)

    run(main)
    assert seen[0] == ("blocks", 1)
    assert seen[1] in (("blocks", 1), ("blocks", 2))
    assert seen[-1] == ("next", 1)


def test_a_cancelled_worker_gives_its_jobs_back(new: New, new_worker: NewWorker) -> None:
    worker, seen = new_worker(concurrency=3, prefetch=10), list[str]()

    @worker.handler("t", ttr=60)
    async def hang(job: ReservedJob) -> None:
        try:
            seen.append(job.id)
            await asyncio.sleep(60)
        finally:
            seen.remove(job.id)

    async def main() -> None:
        async with new() as client:
            await client.put_many(JobSpec("t", id=str(n)) for n in range(8))
            task = asyncio.create_task(worker.run())
            await until(lambda: len(seen) == 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert seen == []
            found: list[ReservedJob] = []
            while len(found) < 8:
                more = await client.pop("t", max=8, wait=patience(5))
                assert more
                found += more
            assert {job.attempt for job in found} == {1}
            assert {job.id for job in found} == {str(n) for n in range(8)}

    run(main)


def test_handlers_and_hooks_may_be_coroutines_or_plain_functions(
    new: New, new_worker: NewWorker
) -> None:
    worker, seen = new_worker(), list[object]()

    @worker.handler("coroutine")
    async def coroutine(body: int, job: ReservedJob) -> int:
        await job.touch()
        await worker.client.put("plain", body + 1, delay=0.05)
        return body

    @worker.handler("plain")
    def plain(body: int) -> int:
        time.sleep(0.01)
        return body

    @worker.before
    async def before(job: ReservedJob) -> None:
        await asyncio.sleep(0)
        seen.append(("before", job.topic))

    @worker.after
    async def after(job: ReservedJob, response: object) -> None:
        await asyncio.sleep(0)
        seen.append(("after", job.topic, response))

    worker.after(lambda job, response: seen.append(("after plainly", job.topic, response)))

    async def main() -> None:
        async with new() as client, running(worker):
            job = await client.put("coroutine", 1, reply=True)
            response = await client.response(job, wait=patience(10))
            assert response is not None
            assert response.body == 1
            await until(lambda: worker.stats().counts.finished == 2 and len(seen) == 6)

    run(main)
    topics = {"coroutine": 1, "plain": 2}
    for topic, value in topics.items():
        own = [one for one in seen if isinstance(one, tuple) and one[1] == topic]
        first = [("before", topic), ("after", topic, value), ("after plainly", topic, value)]
        assert own == first


# Event loops


def test_many_concurrent_tasks_share_one_client(new: New) -> None:
    """All tasks share the first connections: one for publishing and one for consuming."""
    found: list[int] = []

    async def main() -> None:
        client = new()

        async def one(n: int) -> None:
            await client.put("t", n, id=f"job-{n}")
            await client.delete(f"unknown-{n}")
            job = await pop(client, wait=patience(20))
            await job.finish()
            found.append(job.body)

        async with asyncio.TaskGroup() as group:
            for n in range(200):
                group.create_task(one(n))
        assert publisher_connector(client)._attempts == consumer_connector(client)._attempts == 0
        await client.close()

    run(main)
    assert sorted(found) == list(range(200))


def test_clients_and_workers_run_on_consecutive_event_loops(
    new: New, new_worker: NewWorker
) -> None:
    async def main() -> None:
        worker, done = new_worker(), list[int]()

        @worker.handler("t")
        async def work(body: int) -> None:
            done.append(body)

        async with new() as client:
            await client.put("t", 1)
            await worker.run(until_empty=True)
        assert done == [1]

    run(main)
    run(main)


def test_a_client_survives_its_event_loop(new: New) -> None:
    """The client reconnects and loses its leased jobs. A closed client raises ClientClosed."""
    client, closed, jobs = new(), new(), list[ReservedJob]()

    async def first() -> None:
        await closed.put("t")
        await closed.close()
        jobs.append(await pop(client))

    async def second() -> None:
        for act in (closed.put, closed.pop, closed.delete):
            with pytest.raises(ClientClosed):
                await act("t")
        with pytest.raises(LeaseLost):
            await jobs[0].finish()
        await (await pop(client)).finish()
        await client.delete(await client.put("t"))
        assert await drained(client) == []
        await client.close()

    asyncio.run(first())
    run(second, 20)


SHUTDOWN = """
import asyncio, sys
from rabbitdelay.aio import Client
url, namespace, how = sys.argv[1:]
async def main():
    client = Client(url, namespace=namespace, stabilise_seconds=0)
    if how != "connecting":
        await client.put("t")
        await client.pop("u")
    tasks = [client.put_nowait("t", n, delay=0.01) for n in range(500)]
    if how == "waiting":
        tasks.append(asyncio.create_task(client.pop("u", wait=None)))
    if how == "closing":
        await client.close()
    await asyncio.sleep(0.1 if how == "waiting" else 0)
    print("ends", flush=True)
asyncio.run(main())
print("ended", flush=True)
"""


@pytest.mark.parametrize("how", ["at once", "connecting", "waiting", "closing"])
def test_an_event_loop_ends_cleanly_with_puts_in_flight(
    broker_url: str, namespace: str, how: str
) -> None:
    """There is no hang, no task destroyed while pending, and no warning."""
    began = time.monotonic()
    with Process(SHUTDOWN, broker_url, namespace, how, options=("-W", "always")) as process:
        assert process.wait() == 0
    assert process.lines == ["ends", "ended"]
    assert process.errors == []
    assert time.monotonic() - began < patience(15)


DEBUGGED = """
import asyncio, logging, sys
from rabbitdelay import JobSpec
from rabbitdelay.aio import Client, Worker
logging.basicConfig(level=logging.WARNING)
url, namespace = sys.argv[1:]
worker = Worker(url, namespace=namespace, stabilise_seconds=0)
@worker.handler("t", backoff=0)
async def work(body, job):
    await asyncio.sleep(0.01)
    print("ran", body, flush=True)
async def main():
    async with Client(url, namespace=namespace, stabilise_seconds=0) as client:
        await client.put_many(JobSpec("t", n) for n in range(3))
        await client.put("t", 3, delay=0.1, reply=True)
        await client.delete(await client.put("t", 4, delay=0.1))
        await worker.run(max_jobs=4)
        async with await client.pop("u", wait=0.1) or Client(url) as nothing:
            print(type(nothing).__name__)
asyncio.run(main())
"""


def test_debug_mode_reports_no_warnings(broker_url: str, namespace: str) -> None:
    with Process(DEBUGGED, broker_url, namespace, options=("-X", "dev")) as process:
        assert process.wait() == 0, process.errors
    assert sorted(process.lines) == ["Client", "ran 0", "ran 1", "ran 2", "ran 3"]
    slow = [line for line in process.errors if "asyncio" in line and "took" in line]
    assert [line for line in process.errors if line not in slow] == []


SIGNALLED = """
import asyncio, logging, sys
logging.basicConfig(level=logging.INFO)
from rabbitdelay.aio import Worker
worker = Worker(sys.argv[1], namespace=sys.argv[2], stabilise_seconds=0, grace=300)
@worker.handler("t", ttr=600)
async def work(job):
    print("began", job.id, flush=True)
    try:
        await asyncio.sleep(float(job.body))
        print("done", job.id, flush=True)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
        print("cancelled", job.id, flush=True)
        raise
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # dev mode tells of a busy machine
    await worker.run()
    for _ in range(100):
        await asyncio.sleep(0.01 if len(asyncio.all_tasks()) > 1 else 0)
    print("tasks", len(asyncio.all_tasks()), flush=True)
asyncio.run(main())
"""


def test_the_first_signal_drains_a_worker_and_the_second_cancels_it(
    broker_url: str, namespace: str, other: SyncClient
) -> None:
    """The first lets coroutines finish; the second cancels them and gives their jobs back."""
    other.put("t", 1.0, id="short")
    with Process(SIGNALLED, broker_url, namespace, options=("-X", "dev")) as process:
        process.wait_for("began short")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert process.lines == ["began short", "done short", "tasks 1"]
    assert [line for line in process.errors if ":rabbitdelay" not in line] == []
    other.put("t", 600, id="long")
    with Process(SIGNALLED, broker_url, namespace, options=("-X", "dev")) as process:
        process.wait_for("began long")
        process.signal(signal.SIGTERM)
        process.wait_for_error("worker: stopping")  # two simultaneous signals count as one
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert process.lines == ["began long", "cancelled long", "tasks 1"]
    job = other.pop("t", wait=patience(5))
    assert job is not None
    assert (job.id, job.attempt) == ("long", 1)


@pytest.mark.parametrize("turns", range(6))
def test_a_close_during_the_first_connect_ends_waiting_calls(
    broker_url: str, namespace: str, turns: int
) -> None:
    """The close comes at each turn of the loop: a task cancelled before it starts has no result."""

    async def main(wait: Callable[[Client], Coroutine[Any, Any, Any]], *, is_used: bool) -> None:
        client = Client(broker_url, namespace=namespace, stabilise_seconds=0)
        if is_used:
            await client.put("t")
        task = asyncio.create_task(wait(client))
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(patience(10)):
            await client.close()
            with pytest.raises(ClientClosed):
                await task

    asyncio.run(main(lambda client: client.put("t"), is_used=False))
    asyncio.run(main(lambda client: client.pop("u", wait=patience(5)), is_used=True))


# An application's own connection

Connect = Callable[[str], Coroutine[Any, Any, Any]]
KINDS: dict[str, Connect] = {"plain": aio_pika.connect, "robust": aio_pika.connect_robust}


@pytest.mark.parametrize("kind", KINDS)
def test_the_applications_own_connection_is_shared_and_left_open(
    broker_url: str, namespace: str, kind: str
) -> None:
    async def main() -> None:
        connection = await KINDS[kind](broker_url)
        async with connection:
            own = await connection.channel()
            queue = await own.declare_queue(exclusive=True)
            options: dict[str, Any] = {"namespace": namespace, "stabilise_seconds": 0}
            async with Client(connection=connection, **options) as client:
                job = await client.put("t", {"a": b"x".decode() * 300_000}, reply=True, delay=0.05)
                worker = Worker(connection=connection, **options)

                @worker.handler("t")
                async def work(body: dict[str, str]) -> int:
                    return len(body["a"])

                async with running(worker):
                    response = await client.response(job, wait=patience(10))
                assert response is not None
                assert response.body == 300_000
                await client.delete(await client.put("t"))
                assert await drained(client) == []
                await client.put_many(JobSpec("t", n, ttr=60) for n in range(1_000))
                leased = await client.pop("t", max=10, wait=patience(5))
                await leased[0].finish()
            assert not connection.is_closed
            with pytest.raises(LeaseLost):
                await leased[1].finish()
            async with Client(connection=connection, **options) as client:
                found = 0
                while jobs := await client.pop("t", max=500, wait=patience(1)):
                    found += len(jobs)
                    for one in jobs:
                        await one.finish()
                assert found == 999
            await own.default_exchange.publish(aio_pika.Message(b"its own"), queue.name)
            message = await queue.get(timeout=patience(5))
            assert message is not None
            await message.ack()
            await until(lambda: set(connection.transport.connection.channels) <= {0, 1})

    run(main)


class CuttableProxy:
    """A TCP proxy to a broker whose connections can be cut."""

    def __init__(self, url: str) -> None:
        self._url = URL(url)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> str:
        """Start to listen; return the proxy's URL."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return str(self._url.with_port(self._server.sockets[0].getsockname()[1]))

    def cut(self) -> None:
        """Cut all connections; new ones are accepted."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._url.host, self._url.port)
        self._writers += [writer, there[1]]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copy(reader, there[1]))
            group.create_task(self._copy(there[0], writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()


def test_a_client_survives_the_loss_of_a_robust_connection(broker_url: str, namespace: str) -> None:
    """Puts in flight arrive, leased jobs are lost, and pops continue."""

    async def main() -> None:
        proxy = CuttableProxy(broker_url)
        url = await proxy.open()
        connection = await aio_pika.connect_robust(url, reconnect_interval=0.2)
        async with (
            proxy,
            connection,
            Client(connection=connection, namespace=namespace, stabilise_seconds=0) as client,
        ):
            await client.put("t", "before", ttr=60)
            leased = await pop(client)
            proxy.cut()
            await client.put("t", "after", timeout=patience(20))
            with pytest.raises(LeaseLost, match="connection"):
                await leased.finish()
            bodies = []
            for _ in range(2):
                job = await pop(client)
                bodies.append(job.body)
                await job.finish()
            assert sorted(bodies) == ["after", "before"]

    run(main)


def test_a_put_fails_at_once_when_the_application_closes_a_connection_being_restored(
    broker_url: str, namespace: str
) -> None:
    """The put, which waits for the connection to be restored, does not wait for its timeout."""

    async def main() -> None:
        connection = await aio_pika.connect_robust(broker_url)
        connection.connected.clear()  # as between the loss of a connection and the next attempt
        client = Client(
            connection=connection, namespace=namespace, stabilise_seconds=0, timeout=600
        )
        put = asyncio.create_task(client.put("t"))
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(RabbitDelayError, match="lent is closed"):
            await put
        await client.close()

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_fail_when_the_application_closes_its_connection(
    broker_url: str, namespace: str, kind: str
) -> None:
    """Closed before it is lent or during use: puts and pops raise, and do not hang."""

    async def main() -> None:
        connection = await KINDS[kind](broker_url)
        client = Client(connection=connection, namespace=namespace, **CLIENT_OPTIONS)
        await client.put("t", ttr=60)
        leased = await pop(client)
        await connection.close()
        with pytest.raises(RabbitDelayError, match="lent is closed"):
            await client.put("t")
        with pytest.raises(RabbitDelayError, match="lent is closed"):
            await client.pop("t", wait=0.5)
        with pytest.raises(LeaseLost):
            await leased.finish()
        await client.close()
        late = Client(connection=connection, namespace=namespace, connect_timeout=0)
        with pytest.raises(ConnectionFailed, match="lent is closed"):
            await late.put("t")

    run(main)


def test_the_error_names_a_version_of_aiormq_whose_connections_cannot_be_shared(
    broker_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "frame_receiver", lambda _: None)

    async def main() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            client = Client(connection=connection, namespace=namespace, connect_timeout=0)
            with pytest.raises(ConnectionFailed, match="or pass a URL instead"):
                await client.put("t")
            await client.close()

    run(main)


def test_a_client_takes_either_a_url_or_a_connection(broker_url: str) -> None:
    async def main() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            with pytest.raises(InvalidConfiguration, match="not both"):
                Client(broker_url, connection=connection)
            with pytest.raises(InvalidConfiguration, match="not a Channel"):
                Client(connection=connection.channel())  # type: ignore[arg-type] # on purpose

    run(main)
