"""The broker in memory in coroutines, as a test of an asyncio application uses it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rabbitdelay import InvalidConfiguration, Job, ReservedJob, TimedOut, aio
from rabbitdelay.testing import MemoryBroker

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_an_unpaid_order_is_closed() -> None:
    async def scenario() -> None:
        closed, worker = list[int](), aio.Worker("amqp://nowhere.invalid")

        @worker.handler("orderclose")
        async def close(body: dict[str, int]) -> None:
            closed.append(body["order"])

        async with MemoryBroker(start=START) as broker:
            client, _ = broker.aio_client(), broker.run(worker)
            await client.put("orderclose", {"order": 42}, delay=1800)
            await broker.aio_advance(minutes=29)
            assert closed == []
            await broker.aio_advance(minutes=1)
            assert closed == [42]
            assert broker.now == START + timedelta(minutes=30)

    asyncio.run(scenario())


def test_a_handler_may_await_the_clock_and_put_further_jobs() -> None:
    async def scenario() -> None:
        seen, worker = list[tuple[int, datetime]](), aio.Worker()
        async with MemoryBroker(start=START) as broker:
            client = broker.aio_client()

            @worker.handler("t")
            async def chain(body: int) -> None:
                await broker.aio_sleep(10)
                seen.append((body, broker.now))
                if body:
                    await client.put("t", body - 1, delay=50)

            broker.run(worker)
            await client.put("t", 2)
            await broker.aio_advance(minutes=10)
            assert seen == [(2 - n, START + timedelta(minutes=n, seconds=10)) for n in range(3)]

    asyncio.run(scenario())


def test_a_wait_moves_the_clock() -> None:
    async def scenario() -> None:
        async with MemoryBroker(start=START) as broker:
            client = broker.aio_client()
            await client.put("t", delay=3600)
            assert await client.pop("t", wait=1800) is None
            assert broker.now == START + timedelta(seconds=1800)
            job = await client.pop("t", wait=7200)
            assert isinstance(job, aio.ReservedJob)
            await job.finish()
            await broker.aio_run_until_idle()
            assert broker.now == START + timedelta(seconds=3600)
            assert broker.jobs("t") == []

    asyncio.run(scenario())


def test_an_error_of_a_handler_is_raised_in_the_test() -> None:
    async def scenario() -> None:
        worker = aio.Worker()

        @worker.handler("t")
        async def fail() -> None:
            raise ZeroDivisionError

        async with MemoryBroker() as broker:
            client, _ = broker.aio_client(), broker.run(worker)
            await client.put("t")
            with pytest.raises(ZeroDivisionError):
                await broker.aio_run_until_idle()

    asyncio.run(scenario())


def test_a_coroutine_that_exceeds_its_ttr_is_cancelled() -> None:
    async def scenario() -> None:
        ends, worker = list[tuple[int, str]](), aio.Worker()
        async with MemoryBroker(raise_errors=False) as broker:

            @worker.handler("t", ttr=30)
            async def take_long(job: ReservedJob) -> None:
                try:
                    await broker.aio_sleep(40 if job.attempt == 1 else 20)
                    ends.append((job.attempt, "ended"))
                except asyncio.CancelledError:
                    ends.append((job.attempt, "cancelled"))
                    raise

            client, _ = broker.aio_client(), broker.run(worker)
            await client.put("t")
            await broker.aio_advance(minutes=2)
            assert ends == [(1, "cancelled"), (2, "ended")]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_ttr_that_expires_is_an_error_of_the_handler(*, is_plain: bool) -> None:
    async def scenario() -> None:
        worker = aio.Worker()
        async with MemoryBroker() as broker:

            @worker.on_error
            async def take_a_while(_job: Job, _error: BaseException) -> None:
                await asyncio.sleep(0.2)

            async def take_long() -> None:
                await broker.aio_sleep(40)

            handler = (lambda: broker.sleep(40)) if is_plain else take_long
            worker.handler("t", ttr=30, max_attempts=1)(handler)
            client, _ = broker.aio_client(), broker.run(worker)
            await client.put("t")
            with pytest.raises(TimedOut):
                await broker.aio_advance(seconds=31)

    asyncio.run(scenario())


def test_plain_handlers_run_in_threads_beside_the_event_loop() -> None:
    async def scenario() -> None:
        seen, worker = list[int](), aio.Worker()

        @worker.handler("t")
        def note(body: int) -> None:
            seen.append(body)

        async with MemoryBroker() as broker:
            client, _ = broker.aio_client(), broker.run(worker)
            for n in range(10):
                await client.put("t", n, delay=60 * n)
            await broker.aio_advance(minutes=10)
            assert seen == list(range(10))

    asyncio.run(scenario())


def test_clients_and_workers_survive_a_cut() -> None:
    async def scenario() -> None:
        seen, worker = list[int](), aio.Worker()

        @worker.handler("t")
        async def note(body: int) -> None:
            seen.append(body)

        async with MemoryBroker() as broker:
            client, _ = broker.aio_client(), broker.run(worker)
            await client.put("t", 1, delay=60)
            broker.cut()
            await client.put("t", 2, delay=60)
            broker.cut()
            await broker.aio_advance(minutes=2)
            assert sorted(seen) == [1, 2]

    asyncio.run(scenario())


def test_a_worker_of_the_application_runs_on_several_brokers_in_turn() -> None:
    seen, worker = list[int](), aio.Worker("amqp://nowhere.invalid")

    @worker.handler("t")
    async def note(body: int) -> None:
        seen.append(body)

    async def scenario(number: int) -> None:
        async with MemoryBroker() as broker:
            client, _ = broker.aio_client(), broker.run(worker)
            await client.put("t", number)
            await broker.aio_run_until_idle()

    for number in range(3):
        asyncio.run(scenario(number))
    assert seen == [0, 1, 2]


def test_an_asyncio_worker_is_refused_outside_a_coroutine() -> None:
    worker = aio.Worker()
    with MemoryBroker() as broker, pytest.raises(InvalidConfiguration, match="`async with"):
        broker.run(worker)


def test_nothing_is_left_on_the_event_loop() -> None:
    async def scenario() -> set[asyncio.Task[object]]:
        worker = aio.Worker()

        @worker.handler("t")
        async def work() -> None:
            await asyncio.sleep(0)

        async with MemoryBroker() as broker:
            client, _ = broker.aio_client(), broker.run(worker)
            await client.put("t")
            await broker.aio_run_until_idle()
        return asyncio.all_tasks() - {task for task in [asyncio.current_task()] if task}

    assert asyncio.run(scenario()) == set()
