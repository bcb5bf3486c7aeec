"""Compare the throughput of confirmed puts with bare pika.

put_many is compared with a pika SelectConnection loop that pipelines the confirms of the same
messages with the same window into one plain quorum queue. 16 threads that put are compared with one
BlockingConnection that waits for each confirm. The loop sends prepared messages, while put_many
also creates each Job: it checks the arguments and generates the token and the id. The measurements
alternate.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pika

from benchmarks.costs import Cost, Stopwatch, in_turns, rates_and_figures
from benchmarks.measuring import BODY, TOPIC, Report, broker_version, is_quick
from benchmarks.pipelined import WINDOW, Letter, properties_of, publish_all
from rabbitdelay import Client, JobSpec
from rabbitdelay.core.jobs import envelope, validation
from rabbitdelay.core.topology.setup import STABILISE_SECONDS
from rabbitdelay.private_broker import PrivateBroker

DELAY_SECONDS = 3_600
PLAIN_QUEUE = "plain"
THREADS = 16
LEAST_MANY_RATIO = 0.8
LEAST_THREADS_RATIO = 4.0


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of jobs and rounds."""

    rounds: int
    many: int
    each: int
    """Jobs per thread and messages per blocking connection in each round."""


def letters(count: int) -> list[Letter]:
    """Return the messages that put_many would send, addressed to the plain queue."""
    now_ms = time.time_ns() // 1_000_000
    spec = JobSpec(TOPIC, BODY, delay=DELAY_SECONDS)
    jobs = (
        validation.make_job(spec, now_ms=now_ms, random_hex=f"{n:032x}", bounds=validation.Bounds())
        for n in range(count)
    )
    return [Letter("", PLAIN_QUEUE, envelope.encode(job)) for job in jobs]


def put_many(client: Client, count: int) -> Cost:
    """Put jobs from a generator."""
    stopwatch = Stopwatch()
    client.put_many(JobSpec(TOPIC, BODY, delay=DELAY_SECONDS) for _ in range(count))
    return stopwatch.cost(count)


def put_by_threads(client: Client, count: int) -> Cost:
    """Put jobs from 16 threads, each of which waits for its confirms."""

    def put(_thread: int) -> None:
        for _ in range(count):
            client.put(TOPIC, BODY, delay=DELAY_SECONDS)

    with ThreadPoolExecutor(THREADS) as pool:
        stopwatch = Stopwatch()
        list(pool.map(put, range(THREADS)))
        return stopwatch.cost(THREADS * count)


def publish_one_by_one(url: str, messages: list[Letter]) -> Cost:
    """Publish on a BlockingConnection, which waits for each confirm."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        stopwatch = Stopwatch()
        for letter in messages:
            channel.basic_publish(
                letter.exchange,
                letter.routing_key,
                letter.message.body,
                properties_of(letter.message),
                mandatory=True,
            )
        return stopwatch.cost(len(messages))


def set_up(url: str, client: Client) -> None:
    """Declare the queues, wait until they are crash-safe, and warm them up."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        arguments = {"x-queue-type": "quorum"}
        connection.channel().queue_declare(PLAIN_QUEUE, durable=True, arguments=arguments)
    client.put(TOPIC, BODY, delay=DELAY_SECONDS)
    time.sleep(STABILISE_SECONDS)
    put_many(client, 2 * WINDOW)
    publish_all(url, letters(2 * WINDOW))


def run(size: Size) -> Report:
    """Run all four measurements."""
    with (
        PrivateBroker.temporary() as broker,
        Client(broker.url, stabilise_seconds=0, window=WINDOW) as client,
    ):
        set_up(broker.url, client)
        many, few = letters(size.many), letters(size.each)
        costs = in_turns(
            size.rounds,
            {
                "select_connection": lambda: publish_all(broker.url, many),
                "put_many": lambda: put_many(client, size.many),
            },
        )
        costs |= in_turns(
            size.rounds,
            {
                "blocking_connection": lambda: publish_one_by_one(broker.url, few),
                "put_16_threads": lambda: put_by_threads(client, size.each),
            },
        )
        return report(broker_version(broker), costs)


def report(version: str, costs: dict[str, list[Cost]]) -> Report:
    """Compare the medians."""
    rates, figures = rates_and_figures(costs)
    many = round(rates["put_many"] / rates["select_connection"], 2)
    threads = round(rates["put_16_threads"] / rates["blocking_connection"], 2)
    return Report(
        name="put",
        broker=version,
        figures=figures,
        ratios={"put_many": many, "put_16_threads": threads},
        target="put_many >= 0.8 x SelectConnection loop; 16 threads >= 4 x BlockingConnection",
        ok=many >= LEAST_MANY_RATIO and threads >= LEAST_THREADS_RATIO,
        sentence=(
            f"put_many confirms {rates['put_many']:,.0f} jobs/s, {many} times a bare pika loop; "
            f"16 threads of put {rates['put_16_threads']:,.0f}, {threads} times a "
            "BlockingConnection."
        ),
    )


if __name__ == "__main__":
    run(Size(2, 5_000, 100) if is_quick(__doc__) else Size(5, 20_000, 250)).show()
