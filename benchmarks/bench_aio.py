"""Compare the asyncio front end with bare aio-pika, publishing and consuming.

Publishing: put_many from a generator, against aio-pika publishing the same persistent messages to
the same exchange with confirms, 500 at a time with gather. Consuming: a worker with an empty
coroutine handler, against an aio-pika consumer that acks each message, with the same prefetch, on
ready queues filled in advance. The measurements alternate and include the sync front end.
"""

import asyncio
import time
from collections.abc import Callable

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.bench_consume import CONCURRENCY, PREFETCH, fill, work
from benchmarks.costs import Cost, Stopwatch, in_turns, rates_and_figures
from benchmarks.measuring import BODY, TOPIC, Report, broker_version, is_quick
from rabbitdelay import Client, Job, JobSpec, aio
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.private_broker import PrivateBroker

DELAY_SECONDS = 3_600
GATHERED = 500
LEAST_PUT_RATIO = 0.9
LEAST_WORKER_RATIO = 0.7


def message_of(job: Job) -> aio_pika.Message:
    """Return the aio-pika message of a job."""
    message = envelope.encode(job)
    return aio_pika.Message(
        message.body,
        headers=dict(message.headers),
        content_type=message.content_type,
        message_id=message.message_id,
        timestamp=message.timestamp_s,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


async def publish(url: str, client: Client, count: int) -> Cost:
    """Publish prepared messages, 500 at a time."""
    job = client.put(TOPIC, BODY, delay=DELAY_SECONDS)
    message = message_of(job)
    topology = client._engine.settings.topology  # noqa: SLF001 - has the route of the job
    route = Routes(topology, may_declare=False).route(DELAY_SECONDS * 1000)
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(route.exchange, ensure=False)
        stopwatch = Stopwatch()
        for _ in range(0, count, GATHERED):
            puts = (
                exchange.publish(message, route.key_prefix + TOPIC, mandatory=True)
                for _ in range(GATHERED)
            )
            await asyncio.gather(*puts)
        return stopwatch.cost(count)


async def put_many(url: str, count: int) -> Cost:
    """Put jobs from a generator."""
    async with aio.Client(url, stabilise_seconds=0) as client:
        await client.put(TOPIC, BODY, delay=DELAY_SECONDS)
        stopwatch = Stopwatch()
        await client.put_many(JobSpec(TOPIC, BODY, delay=DELAY_SECONDS) for _ in range(count))
        return stopwatch.cost(count)


def put_many_sync(client: Client, count: int) -> Cost:
    """Put jobs from a generator, with the sync front end."""
    stopwatch = Stopwatch()
    client.put_many(JobSpec(TOPIC, BODY, delay=DELAY_SECONDS) for _ in range(count))
    return stopwatch.cost(count)


async def consume(url: str, queue: str, count: int) -> Cost:
    """Consume and ack each message, timed from the first to the last."""
    began: list[Stopwatch] = []
    left, done = count, asyncio.Event()

    async def receive(message: AbstractIncomingMessage) -> None:
        nonlocal left
        if not began:
            began.append(Stopwatch())
        await message.ack()
        left -= 1
        if left == 0:
            done.set()

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        ready = await channel.get_queue(queue, ensure=False)
        await ready.consume(receive)
        await done.wait()
        return began[0].cost(count)


async def work_aio(url: str, count: int) -> Cost:
    """Run a worker through a filled queue, timed from the first job to the last."""
    worker = aio.Worker(url, concurrency=CONCURRENCY, prefetch=PREFETCH, stabilise_seconds=0)
    began: list[Stopwatch] = []
    costs: list[Cost] = []
    left = count

    @worker.handler(TOPIC)
    async def handle(job: Job) -> None:  # noqa: ARG001 - the handler does nothing
        nonlocal left
        if not began:
            began.append(Stopwatch())
        left -= 1
        if left == 0:
            costs.append(began[0].cost(count))

    await worker.run(max_jobs=count)
    return costs[0]


def filled(client: Client, count: int, consuming: Callable[[], Cost]) -> Cost:
    """Put `count` ready jobs, then consume them."""
    fill(client, count)
    return consuming()


def run(rounds: int, many: int) -> Report:
    """Run all measurements."""
    with PrivateBroker.temporary() as broker, Client(broker.url, stabilise_seconds=0) as client:
        url = broker.url
        queue = client.topology.ready_queue(TOPIC)
        ways: dict[str, Callable[[], Cost]] = {
            "bare_publisher": lambda: asyncio.run(publish(url, client, many)),
            "put_many": lambda: asyncio.run(put_many(url, many)),
            "put_many_sync": lambda: put_many_sync(client, many),
            "bare_consumer": lambda: filled(
                client, many, lambda: asyncio.run(consume(url, queue, many))
            ),
            "worker": lambda: filled(client, many, lambda: asyncio.run(work_aio(url, many))),
            "worker_sync": lambda: work(url, client, many),
        }
        in_turns(1, ways)  # warms up all measurements
        time.sleep(1)
        return report(broker_version(broker), in_turns(rounds, ways))


def report(version: str, costs: dict[str, list[Cost]]) -> Report:
    """Compare the medians."""
    rates, figures = rates_and_figures(costs)
    puts = round(rates["put_many"] / rates["bare_publisher"], 2)
    worker = round(rates["worker"] / rates["bare_consumer"], 2)
    return Report(
        name="aio",
        broker=version,
        figures=figures,
        ratios={"put_many": puts, "worker": worker},
        target="put_many >= 0.9 x bare aio-pika with gather; worker >= 0.7 x a bare consumer",
        ok=puts >= LEAST_PUT_RATIO and worker >= LEAST_WORKER_RATIO,
        sentence=(
            f"On asyncio put_many puts {rates['put_many']:,.0f} jobs/s, {puts} times bare aio-pika "
            f"with windows of {GATHERED}; a worker finishes {rates['worker']:,.0f} jobs/s, "
            f"{worker} times a bare aio-pika consumer."
        ),
    )


if __name__ == "__main__":
    run(*((2, 3_000) if is_quick(__doc__) else (5, 20_000))).show()
