"""Measure the cost of proving, at 1000 jobs/s, that every delete is known.

A worker in a separate process handles jobs that are put one by one at an even rate. Its proof is
valid alternately for 2 s, as in the product, and forever after the first fence.
"""

import argparse
import json
import multiprocessing
import time
from multiprocessing.connection import Connection as Pipe
from statistics import median
from typing import Any

from benchmarks.measuring import TOPIC, broker_version
from rabbitdelay import Client, Job, Worker
from rabbitdelay.core.deletes import freshness
from rabbitdelay.core.work.stats import percentile
from rabbitdelay.private_broker import PrivateBroker

JOBS_PER_SECOND = 1_000
FOR_EVER_SECONDS = 1e9
WARM_UP = "warm-up"


def work(url: str, count: int, pipe: Pipe, *, expires: bool) -> None:
    """Handle `count` jobs after a warm-up job, and send their cost."""
    if not expires:
        freshness.FRESH_SECONDS = freshness.REFRESH_SECONDS = FOR_EVER_SECONDS
    worker = Worker(url, concurrency=10, prefetch=2_000, stabilise_seconds=0)
    latenesses_ms: list[float] = []
    began: list[float] = []

    def handle(job: Job) -> None:
        if job.id == WARM_UP:
            began.append(time.process_time())
            pipe.send(None)
            return
        latenesses_ms.append(time.time_ns() / 1_000_000 - job.due_ms)
        if len(latenesses_ms) == count:
            pipe.send((time.process_time() - began[0], sorted(latenesses_ms)))
            worker.stop()

    worker.handler(TOPIC)(handle)
    worker.run()


def measure(url: str, client: Client, seconds: int, *, expires: bool) -> dict[str, float]:
    """Put a load at an even rate and return its cost in the worker."""
    count = seconds * JOBS_PER_SECOND
    ours, theirs = multiprocessing.Pipe()
    client.put(TOPIC, id=WARM_UP)
    process = multiprocessing.Process(
        target=work, args=(url, count, theirs), kwargs={"expires": expires}
    )
    process.start()
    ours.recv()
    records, began = client.tombstones().records, time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / JOBS_PER_SECOND - time.monotonic()))
        client.put_nowait(TOPIC, number)
    cpu_seconds, latenesses_ms = ours.recv()
    fences = client.tombstones().records - records
    took = time.monotonic() - began
    process.join()
    return {
        "cpu_us_per_job": cpu_seconds / count * 1e6,
        "fences_per_second": fences / took,
        "p50_ms": percentile(latenesses_ms, 50),
        "p99_ms": percentile(latenesses_ms, 99),
    }


def main() -> None:
    """Measure both variants alternately."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    chosen = parser.parse_args()
    results: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    with PrivateBroker.temporary() as broker, Client(broker.url) as client:
        for _ in range(chosen.rounds):
            for expires, found in results.items():
                found.append(measure(broker.url, client, chosen.seconds, expires=expires))
        for expires, found in results.items():
            line: dict[str, Any] = {"broker": broker_version(broker), "proof_expires": expires}
            line |= {name: round(median(one[name] for one in found), 2) for name in found[0]}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
