"""Measure the cost of deletes compared with puts, and of a million tombstones in a worker.

1. delete_many against put_many, and delete against put one by one: by id, by job, and by id back
   to back. A delete by id lasts at least until the millisecond in which it began has passed. For
   deletes at random times, that millisecond has usually passed when the broker responds. Back to
   back, each delete begins at the start of a millisecond.
2. A worker with an empty handler in a namespace with a million live tombstones, against a worker in
   a namespace without any.
3. The time from the start of a worker to its first job, with a million tombstones in the log, and
   with a snapshot of them.
4. The time until a worker knows of a delete that has returned.

The measurements alternate.
"""

import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.bench_consume import CONCURRENCY, PREFETCH, fill
from benchmarks.costs import Cost, Stopwatch, in_turns, rates_and_figures
from benchmarks.measuring import (
    BODY,
    TOPIC,
    Report,
    broker_version,
    is_quick,
    percentile,
    resident_bytes,
)
from benchmarks.propagation import load, propagation_ms
from rabbitdelay import Client, Job, JobSpec, Worker
from rabbitdelay.core.deletes.tombstones import Tombstones
from rabbitdelay.private_broker import PrivateBroker

DELAY_SECONDS = 3_600
LEAST_MANY_RATIO = 0.8
LEAST_SINGLE_RATIO = 0.9
LEAST_WORKER_RATIO = 0.9
MOST_START_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
CHECKS = 100_000
NONE, MANY = "none", "many"


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of deletes, puts, jobs and rounds."""

    rounds: int
    many: int
    few: int
    tombstones: int
    jobs: int
    propagated: int


@dataclass(frozen=True, slots=True)
class Starts:
    """Times of a worker that starts with many tombstones, in seconds."""

    written_seconds: float
    """Time to delete all jobs, in seconds."""
    log_seconds: float
    snapshot_seconds: float
    known: "Known"


@dataclass(frozen=True, slots=True)
class Known:
    """Cost of the tombstones in a consumer."""

    memory_bytes: int
    check_lives_microseconds: float
    """Time to check a live and a deleted job, in microseconds."""
    check_dead_microseconds: float


def ids(count: int) -> Iterator[str]:
    """Yield `count` ids of thirty characters, of jobs that were never put."""
    return (f"order-{number:024d}" for number in range(count))


def put_many(client: Client, count: int) -> Cost:
    """Put jobs from a generator."""
    stopwatch = Stopwatch()
    client.put_many(JobSpec(TOPIC, BODY, delay=DELAY_SECONDS) for _ in range(count))
    return stopwatch.cost(count)


def delete_many(client: Client, count: int) -> Cost:
    """Delete jobs from a generator."""
    stopwatch = Stopwatch()
    client.delete_many(ids(count))
    return stopwatch.cost(count)


def put(client: Client, count: int) -> Cost:
    """Put jobs one by one, each at a random time."""
    return one_by_one(partial(client.put, TOPIC, BODY, delay=DELAY_SECONDS) for _ in range(count))


def delete(client: Client, count: int) -> Cost:
    """Delete by id one by one, each at a random time."""
    return one_by_one(partial(client.delete, order) for order in ids(count))


def delete_job(client: Client, count: int) -> Cost:
    """Delete the jobs that put returned one by one, each at a random time."""
    jobs = [client.put_nowait(TOPIC, BODY, delay=DELAY_SECONDS) for _ in range(count)]
    return one_by_one([partial(client.delete, job.result()) for job in jobs])


def one_by_one(actions: Iterable[Callable[[], object]]) -> Cost:
    """Measure each action separately, started at a random point of a millisecond."""
    costs = []
    for action in actions:
        time.sleep(random.random() / 1000)
        stopwatch = Stopwatch()
        action()
        costs.append(stopwatch.cost(1))
    return Cost(
        len(costs), sum(one.seconds for one in costs), sum(one.cpu_seconds for one in costs)
    )


def delete_in_a_row(client: Client, count: int) -> Cost:
    """Delete by id, back to back."""
    stopwatch = Stopwatch()
    for order in ids(count):
        client.delete(order)
    return stopwatch.cost(count)


def work(url: str, client: Client, count: int) -> Cost:
    """Run a worker through a filled queue, timed from the first job to the last."""
    fill(client, count)
    worker = new_worker(url, client)
    began: list[Stopwatch] = []

    @worker.handler(TOPIC)
    def handle(job: Job) -> None:  # noqa: ARG001 - the handler does nothing
        if not began:
            began.append(Stopwatch())

    worker.run(max_jobs=count)
    return began[0].cost(count)


def new_worker(url: str, client: Client) -> Worker:
    """Return a worker in the namespace of a client."""
    return Worker(
        url,
        namespace=client.topology.namespace,
        concurrency=CONCURRENCY,
        prefetch=PREFETCH,
        stabilise_seconds=0,
    )


def first_job_seconds(url: str, client: Client, *, until: Callable[[], bool]) -> float:
    """Return the seconds from a worker's start to its first job; it runs on until `until` holds."""
    client.put(TOPIC, BODY)
    worker, handled = new_worker(url, client), threading.Event()

    @worker.handler(TOPIC)
    def handle(job: Job) -> None:  # noqa: ARG001 - the handler does nothing
        handled.set()

    thread = threading.Thread(target=worker.run)
    began = time.monotonic()
    thread.start()
    handled.wait(PATIENCE_SECONDS)
    seconds = time.monotonic() - began
    while not until() and time.monotonic() - began < PATIENCE_SECONDS:
        time.sleep(0.1)
    worker.stop()
    thread.join()
    return seconds


def fill_with_tombstones(url: str, client: Client, count: int) -> Starts:
    """Delete `count` jobs, then start a worker without a snapshot and one with it."""
    client.topology.apply()  # a delete does not create the namespace
    stopwatch = Stopwatch()
    client.delete_many(ids(count))
    written_seconds = stopwatch.cost(count).seconds
    namespace = client.topology.namespace
    with Client(url, namespace=namespace) as observer:
        log_seconds = first_job_seconds(
            url, client, until=lambda: observer.tombstones().snapshot_ms is not None
        )
    return Starts(
        written_seconds,
        log_seconds,
        first_job_seconds(url, client, until=lambda: True),
        in_another_process(url, namespace, count),
    )


def in_another_process(url: str, namespace: str, count: int) -> Known:
    """Return the cost of the tombstones in a consumer, measured in a separate process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(read_all, (url, namespace, count))


def read_all(url: str, namespace: str, count: int) -> Known:
    """Read the log; return the additional memory and the time of a check."""
    with Client(url, namespace=namespace) as client:
        client.connect()
        before_bytes = resident_bytes()
        known = client._log_reader().known.following.tombstones  # noqa: SLF001 - it measures its memory
        memory_bytes = resident_bytes() - before_bytes
        lives, dead = range(count, 2 * count), range(count)
        return Known(memory_bytes, check(known, lives), check(known, dead))


def check(known: Tombstones, numbers: range) -> float:
    """Return the microseconds of one check, the best of three runs."""
    orders = [f"order-{number:024d}" for number in random.sample(numbers, CHECKS)]
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        for order in orders:
            known.kills(TOPIC, order, "0123456789abcdef", 1)
        seconds.append(time.perf_counter() - began)
    return min(seconds) / CHECKS * 1e6


def run(size: Size) -> Report:
    """Run all measurements."""
    with (
        PrivateBroker.temporary() as broker,
        Client(broker.url, namespace=NONE, stabilise_seconds=0) as none,
        Client(broker.url, namespace=MANY, stabilise_seconds=0) as many,
    ):
        none.put(TOPIC, BODY, delay=DELAY_SECONDS)
        deletes: dict[str, Callable[[], Cost]] = {
            "put_many": lambda: put_many(none, size.many),
            "delete_many": lambda: delete_many(none, size.many),
            "put": lambda: put(none, size.few),
            "delete": lambda: delete(none, size.few),
            "delete_job": lambda: delete_job(none, size.few),
            "delete_in_a_row": lambda: delete_in_a_row(none, size.few),
        }
        in_turns(1, deletes)  # warms up all measurements
        costs = in_turns(size.rounds, deletes)
        starts = fill_with_tombstones(broker.url, many, size.tombstones)
        with Client(broker.url, namespace="clean", stabilise_seconds=0) as clean:
            workers: dict[str, Callable[[], Cost]] = {
                "worker": lambda: work(broker.url, clean, size.jobs),
                "worker_with_tombstones": lambda: work(broker.url, many, size.jobs),
            }
            in_turns(1, workers)
            costs |= in_turns(size.rounds, workers)
        propagation = propagations(broker.url, size.propagated)
        return report(broker_version(broker), costs, starts, propagation)


def propagations(url: str, count: int) -> dict[str, list[float]]:
    """Return the milliseconds until deletes were known, with and without other jobs."""
    with Client(url, namespace="propagation", stabilise_seconds=0) as client:
        quiet = propagation_ms(url, client, count)
        with load(url, client.topology.namespace):
            return {"quiet": quiet, "under_load": propagation_ms(url, client, count)}


def report(
    version: str,
    costs: dict[str, list[Cost]],
    starts: Starts,
    propagation: dict[str, list[float]],
) -> Report:
    """Compare the medians."""
    rates, figures = rates_and_figures(costs)
    many = round(rates["delete_many"] / rates["put_many"], 2)
    single = round(rates["delete"] / rates["put"], 2)
    by_job = round(rates["delete_job"] / rates["put"], 2)
    in_a_row = round(rates["delete_in_a_row"] / rates["put"], 2)
    worker = round(rates["worker_with_tombstones"] / rates["worker"], 2)
    return Report(
        name="delete",
        broker=version,
        figures={
            **figures,
            "written_seconds": round(starts.written_seconds, 1),
            "start_from_log_seconds": round(starts.log_seconds, 1),
            "start_from_snapshot_seconds": round(starts.snapshot_seconds, 1),
            "memory_mb": round(starts.known.memory_bytes / 1e6),
            "check_microseconds": {
                "lives": round(starts.known.check_lives_microseconds, 2),
                "dead": round(starts.known.check_dead_microseconds, 2),
            },
            "propagation_ms": {name: spread(values) for name, values in propagation.items()},
        },
        ratios={
            "delete_many": many,
            "delete": single,
            "delete_job": by_job,
            "delete_in_a_row": in_a_row,
            "worker_with_tombstones": worker,
        },
        target=(
            "delete_many >= 0.8 x put_many; delete >= 0.9 x put; a worker with a million "
            "tombstones >= 0.9 x one with none, its first job within 5 s with a snapshot"
        ),
        ok=many >= LEAST_MANY_RATIO
        and single >= LEAST_SINGLE_RATIO
        and worker >= LEAST_WORKER_RATIO
        and starts.snapshot_seconds <= MOST_START_SECONDS,
        sentence=(
            f"delete_many deletes {rates['delete_many']:,.0f} jobs/s, {many} times put_many; a "
            f"delete costs a put ({single}; by job {by_job}; by id in a row {in_a_row}). A worker "
            f"with a million tombstones does {worker} of "
            f"what one with none does; its first job comes after {starts.snapshot_seconds:.1f} s "
            f"with a snapshot, {starts.log_seconds:.1f} s without. A delete that returned is known "
            f"to a worker within {percentile(propagation['quiet'], 99):.1f} ms at p99."
        ),
    )


def spread(values: list[float]) -> dict[str, float]:
    """Return percentiles of the values."""
    percents = {"p50": 50, "p99": 99, "most": 100}
    return {name: round(percentile(values, percent), 2) for name, percent in percents.items()}


if __name__ == "__main__":
    quick = Size(2, 5_000, 100, 150_000, 3_000, 50)
    run(quick if is_quick(__doc__) else Size(5, 20_000, 400, 1_000_000, 20_000, 1_000)).show()
