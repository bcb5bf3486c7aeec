"""Compare the HTTP gateway with bare FastAPI routes, and with the asyncio client.

`rabbitdelay serve` runs in a process of its own, with routes that only parse the same requests and
answer (bare_routes.py). Requests come on 16 keep-alive connections from this process, which speaks
HTTP over raw sockets. The measurements alternate:

- single puts, against the bare route;
- 1000 puts in one request, against put_many of 1000 jobs by the asyncio client in this process;
- pop and finish of ready jobs, against the bare pair;
- long polls on 16 connections that are woken by jobs that become due, 50 a second, against an
  asyncio worker: how late the job is when the response is read, and when the handler starts.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain

from benchmarks.costs import Cost, Stopwatch, in_turns, rates_and_figures
from benchmarks.http_load import NO_CONTENT, Connection, connections, in_parallel, post
from benchmarks.measuring import (
    BODY_BYTES,
    TOPIC,
    Report,
    broker_version,
    is_quick,
    percentile,
    process_seconds,
)
from rabbitdelay import Client, Job, JobSpec, aio
from rabbitdelay.core.topology.setup import STABILISE_SECONDS
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.machine.ports import pick_free

BODY = "x" * BODY_BYTES
DELAY_SECONDS = 3_600
CONNECTIONS = 16
IN_ONE_REQUEST = 1_000
JOBS_PER_SECOND = 50
LEAD_SECONDS = 3.0
"""Seconds from the puts until the first job of a measurement of lateness is due."""
START_SECONDS = 30
LEAST_RATIOS = {"put": 0.6, "batch": 0.7, "pop_finish": 0.5}
MOST_LATER_MS = 10.0

PUT = json.dumps({"topic": TOPIC, "body": BODY, "delay": DELAY_SECONDS}).encode()
BATCH = json.dumps({"jobs": [json.loads(PUT)] * IN_ONE_REQUEST}).encode()
POP = json.dumps({"topics": TOPIC, "wait": 20}).encode()


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of rounds, requests and jobs."""

    rounds: int
    puts: int
    batches: int
    pops: int
    due: int


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway."""

    port: int
    process_id: int

    def run(
        self, count: int, load: Callable[[list[Connection]], Coroutine[None, None, None]]
    ) -> Cost:
        """Run a load of `count` operations; the processor time is the gateway's."""

        async def measure() -> Cost:
            async with connections(self.port, CONNECTIONS) as opened:
                cpu_began, stopwatch = process_seconds(self.process_id), Stopwatch()
                await load(opened)
                seconds = stopwatch.cost(count).seconds
                return Cost(count, seconds, process_seconds(self.process_id) - cpu_began)

        return asyncio.run(measure())


@contextmanager
def serving(url: str) -> Iterator[Gateway]:
    """Run a gateway inside the block."""
    (port,) = pick_free(1)
    options = ("--url", url, "--stabilise-seconds", "0", "serve", "--port", str(port))
    command = [sys.executable, "-m", "benchmarks.bare_routes", *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_wait_until_ready(port))
        yield Gateway(port, process.pid)
    finally:
        process.terminate()
        process.wait()


async def _wait_until_ready(port: int) -> None:
    request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                async with connections(port, 1) as (connection,):
                    if (await connection.send(request))[0] == 200:
                        return
            except OSError:
                pass
            await asyncio.sleep(0.1)


async def expect(connection: Connection, request: bytes, status: int) -> bytes:
    """Send a request; return the body of its response, which must have this status."""
    found, body = await connection.send(request)
    if found != status:
        raise AssertionError(f"status {found} and not {status}: {body[:300]!r}")
    return body


# Puts


def put(gateway: Gateway, path: str, count: int) -> Cost:
    """Put jobs one by one, over all connections."""
    request = post(path, PUT)

    async def act(connection: Connection) -> None:
        await expect(connection, request, 201)

    return gateway.run(count, lambda opened: in_parallel(opened, count, act))


def put_batches(gateway: Gateway, count: int) -> Cost:
    """Put 1000 jobs in each request, one request after the other."""
    request = post("/v1/jobs/batch", BATCH)

    async def load(opened: list[Connection]) -> None:
        for _ in range(count):
            await expect(opened[0], request, 201)

    return gateway.run(count * IN_ONE_REQUEST, load)


def put_many(url: str, count: int) -> Cost:
    """Put 1000 jobs with each call of the asyncio client, one call after the other."""

    async def measure() -> Cost:
        async with aio.Client(url, stabilise_seconds=0) as client:
            await client.put(TOPIC, BODY, delay=DELAY_SECONDS)
            stopwatch = Stopwatch()
            for _ in range(count):
                spec = JobSpec(TOPIC, BODY, delay=DELAY_SECONDS)
                await client.put_many(spec for _ in range(IN_ONE_REQUEST))
            return stopwatch.cost(count * IN_ONE_REQUEST)

    return asyncio.run(measure())


# Pops


def pop_and_finish(gateway: Gateway, prefix: str, count: int) -> Cost:
    """Pop jobs and finish each, over all connections."""
    pop, finish = post(f"{prefix}/pop", POP), f"{prefix}/finish"

    async def act(connection: Connection) -> None:
        await expect(connection, post(finish, lease_in(await expect(connection, pop, 200))), 204)

    return gateway.run(count, lambda opened: in_parallel(opened, count, act))


def lease_in(popped: bytes) -> bytes:
    """Return the request that finishes the job in the response to a pop."""
    begin = popped.index(b'"lease":') + len(b'"lease":')
    return b'{"lease":' + popped[begin : popped.index(b",", begin)] + b"}"


def filled(client: Client, gateway: Gateway, count: int) -> Cost:
    """Put ready jobs, then pop and finish them."""
    client.put_many(JobSpec(TOPIC, BODY) for _ in range(count))
    return pop_and_finish(gateway, "/v1", count)


# Lateness


def put_due(client: Client, count: int) -> dict[str, int]:
    """Put jobs that become due one after the other; return each id with its due time in ms."""
    due: dict[str, int] = {}
    client.put_many(
        (
            JobSpec(TOPIC, BODY, delay=timedelta(seconds=LEAD_SECONDS + n / JOBS_PER_SECOND))
            for n in range(count)
        ),
        on_confirmed=lambda job: due.__setitem__(job.id, job.due_ms),
    )
    return due


def lateness_of_polls(gateway: Gateway, client: Client, count: int) -> list[float]:
    """Return how late each job is, in milliseconds, when the response to its pop is read."""
    due, late = put_due(client, count), []
    pop = post("/v1/pop", POP)

    async def act(connection: Connection) -> None:
        status, popped = await connection.send(pop)
        received_ms = time.time_ns() / 1_000_000
        if status == NO_CONTENT:
            raise AssertionError("no job came")
        late.append(received_ms - due[json.loads(popped)["jobs"][0]["id"]])
        await expect(connection, post("/v1/finish", lease_in(popped)), 204)

    gateway.run(count, lambda opened: in_parallel(opened, count, act))
    return late


def lateness_of_worker(url: str, client: Client, count: int) -> list[float]:
    """Return how late each job is, in milliseconds, when its handler starts."""
    due, late = put_due(client, count), []
    worker = aio.Worker(url, concurrency=CONNECTIONS, stabilise_seconds=0)

    @worker.handler(TOPIC)
    async def handle(job: Job) -> None:
        late.append(time.time_ns() / 1_000_000 - due[job.id])

    asyncio.run(worker.run(max_jobs=count))
    return late


def run(size: Size) -> Report:
    """Run all measurements."""
    with PrivateBroker.temporary() as broker, Client(broker.url, stabilise_seconds=0) as client:
        client.put_many([JobSpec(TOPIC, BODY, delay=DELAY_SECONDS), JobSpec(TOPIC, BODY)])
        with serving(broker.url) as gateway:
            set_up(gateway, client)
            costs = in_turns(
                size.rounds,
                {
                    "bare_put": partial(put, gateway, "/bare/put", size.puts),
                    "put": partial(put, gateway, "/v1/jobs", size.puts),
                    "put_many": partial(put_many, broker.url, size.batches),
                    "batch": partial(put_batches, gateway, size.batches),
                    "bare_pop_finish": partial(pop_and_finish, gateway, "/bare", size.pops),
                    "pop_finish": partial(filled, client, gateway, size.pops),
                },
            )
            polls: list[list[float]] = []
            works: list[list[float]] = []
            for _ in range(size.rounds):
                polls.append(lateness_of_polls(gateway, client, size.due))
                works.append(lateness_of_worker(broker.url, client, size.due))
        return report(broker_version(broker), costs, polls, works)


def set_up(gateway: Gateway, client: Client) -> None:
    """Declare the queues, wait until they are crash-safe, and warm up."""
    pop_and_finish(gateway, "/v1", 1)
    due = put_due(client, JOBS_PER_SECOND)
    time.sleep(STABILISE_SECONDS)
    pop_and_finish(gateway, "/v1", len(due))
    put(gateway, "/bare/put", IN_ONE_REQUEST)
    put(gateway, "/v1/jobs", IN_ONE_REQUEST)


def report(
    version: str,
    costs: dict[str, list[Cost]],
    polls: list[list[float]],
    works: list[list[float]],
) -> Report:
    """Compare the medians, and the lateness of all rounds."""
    rates, figures = rates_and_figures(costs)
    pairs = {"put": "bare_put", "batch": "put_many", "pop_finish": "bare_pop_finish"}
    ratios = {name: round(rates[name] / rates[base], 2) for name, base in pairs.items()}
    late: dict[str, dict[str, float]] = {
        name: {
            f"p{percent}_ms": round(percentile(list(chain(*rounds)), percent), 1)
            for percent in (50, 99, 100)
        }
        for name, rounds in (("long_poll", polls), ("worker", works))
    }
    later_ms = round(late["long_poll"]["p99_ms"] - late["worker"]["p99_ms"], 1)
    return Report(
        name="http",
        broker=version,
        figures=figures | late | {"long_poll_later_p99_ms": later_ms},
        ratios=ratios,
        target="put >= 0.6 x a bare route; 1000 in a request >= 0.7 x put_many; pop and finish >= "
        "0.5 x the bare pair; p99 of a long poll at most 10 ms later than the worker's",
        ok=all(ratios[name] >= least for name, least in LEAST_RATIOS.items())
        and later_ms <= MOST_LATER_MS,
        sentence=(
            f"Over HTTP {rates['put']:,.0f} jobs/s are put, {ratios['put']} times a bare route; "
            f"{rates['batch']:,.0f} in requests of {IN_ONE_REQUEST}, {ratios['batch']} times "
            f"put_many; {rates['pop_finish']:,.0f} popped and finished, {ratios['pop_finish']} "
            f"times a bare pair; a long poll has its job {late['long_poll']['p99_ms']} ms after "
            f"it is due (p99), {later_ms} ms later than a worker."
        ),
    )


if __name__ == "__main__":
    run(Size(2, 1_000, 6, 500, 150) if is_quick(__doc__) else Size(5, 5_000, 20, 3_000, 500)).show()
