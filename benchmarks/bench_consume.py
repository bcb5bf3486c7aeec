"""Compare the throughput of a worker and of pop with bare pika.

A worker with an empty handler is compared with a bare pika SelectConnection that acks each message,
with the same prefetch, on ready queues filled in advance. Pop with finish, one by one, is compared
with basic_get and basic_ack on a BlockingConnection. The measurements alternate.
"""

import itertools
import time
from collections.abc import Callable

import pika
from pika.channel import Channel
from pika.connection import Connection
from pika.spec import Basic, BasicProperties

from benchmarks.costs import Cost, Stopwatch, in_turns, rates_and_figures
from benchmarks.measuring import BODY, TOPIC, Report, broker_version, is_quick
from rabbitdelay import Client, Job, JobSpec, Worker
from rabbitdelay.private_broker import PrivateBroker

PREFETCH = 100
CONCURRENCY = 10
LEAST_WORKER_RATIO = 0.6
LEAST_POP_RATIO = 0.7


class BareConsumer:
    """Consumes `count` messages and acks each one."""

    def __init__(self, url: str, queue: str, count: int) -> None:
        self._queue = queue
        self._left = count
        self._count = count
        self._stopwatch: Stopwatch | None = None
        self.cost: Cost | None = None
        self._connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=self._connected,
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    def run(self) -> Cost:
        """Consume, timed from the first message to the last."""
        self._connection.ioloop.start()
        assert self.cost is not None
        return self.cost

    def _connected(self, connection: Connection) -> None:
        connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Channel) -> None:
        def consume(_frame: object) -> None:
            channel.basic_consume(self._queue, self._receive)

        channel.basic_qos(prefetch_count=PREFETCH, callback=consume)

    def _receive(
        self, channel: Channel, method: Basic.Deliver, _properties: BasicProperties, _body: bytes
    ) -> None:
        self._stopwatch = self._stopwatch or Stopwatch()
        channel.basic_ack(method.delivery_tag or 0)
        self._left -= 1
        if self._left == 0:
            self.cost = self._stopwatch.cost(self._count)
            self._connection.close()


def work(url: str, client: Client, count: int) -> Cost:
    """Run a worker through a filled queue, timed from the first job to the last."""
    fill(client, count)
    worker = Worker(url, concurrency=CONCURRENCY, prefetch=PREFETCH, stabilise_seconds=0)
    began: list[Stopwatch] = []
    costs: list[Cost] = []
    numbers = itertools.count(1)

    @worker.handler(TOPIC)
    def handle(job: Job) -> None:  # noqa: ARG001 - the handler does nothing
        if not began:
            began.append(Stopwatch())
        if next(numbers) == count:  # the time to close is not measured for the bare consumer either
            costs.append(began[0].cost(count))

    worker.run(max_jobs=count)
    return costs[0]


def consume(url: str, client: Client, count: int) -> Cost:
    """Run a bare consumer through a filled queue."""
    fill(client, count)
    return BareConsumer(url, client.topology.ready_queue(TOPIC), count).run()


def pop(client: Client, count: int) -> Cost:
    """Pop and finish one by one."""
    fill(client, count)
    stopwatch = Stopwatch()
    for _ in range(count):
        job = client.pop(TOPIC)
        assert job is not None
        job.finish()
    return stopwatch.cost(count)


def get(url: str, client: Client, count: int) -> Cost:
    """Get and ack one by one."""
    fill(client, count)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        stopwatch = Stopwatch()
        for _ in range(count):
            method, _properties, _body = channel.basic_get(client.topology.ready_queue(TOPIC))
            assert method is not None
            channel.basic_ack(method.delivery_tag or 0)
        return stopwatch.cost(count)


def fill(client: Client, count: int) -> None:
    """Put `count` ready jobs and wait until the broker is idle."""
    client.put_many(JobSpec(TOPIC, BODY) for _ in range(count))
    time.sleep(0.5)


def run(rounds: int, many: int, few: int) -> Report:
    """Run all four measurements."""
    with PrivateBroker.temporary() as broker, Client(broker.url, stabilise_seconds=0) as client:
        url = broker.url
        ways: dict[str, Callable[[], Cost]] = {
            "bare_consumer": lambda: consume(url, client, many),
            "worker": lambda: work(url, client, many),
            "get_ack": lambda: get(url, client, few),
            "pop_finish": lambda: pop(client, few),
        }
        in_turns(1, ways)  # warms up all measurements
        return report(broker_version(broker), in_turns(rounds, ways))


def report(version: str, costs: dict[str, list[Cost]]) -> Report:
    """Compare the medians."""
    rates, figures = rates_and_figures(costs)
    worker = round(rates["worker"] / rates["bare_consumer"], 2)
    popped = round(rates["pop_finish"] / rates["get_ack"], 2)
    return Report(
        name="consume",
        broker=version,
        figures=figures,
        ratios={"worker": worker, "pop_finish": popped},
        target="worker >= 0.6 x a bare consumer; pop and finish >= 0.7 x basic_get and basic_ack",
        ok=worker >= LEAST_WORKER_RATIO and popped >= LEAST_POP_RATIO,
        sentence=(
            f"A worker finishes {rates['worker']:,.0f} jobs/s, {worker} times a bare pika "
            f"consumer; pop and finish take {rates['pop_finish']:,.0f}/s one by one, {popped} "
            "times basic_get and basic_ack."
        ),
    )


if __name__ == "__main__":
    run(*((2, 3_000, 300) if is_quick(__doc__) else (5, 20_000, 1_500))).show()
