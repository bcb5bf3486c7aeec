"""Count the settled jobs that are redelivered after a worker has closed.

Each round fills a topic, runs a worker through it with a large prefetch, and counts the messages in
the ready queue afterwards, which must be empty. `finish` ends with `run(max_jobs=…)`. So does
`straggle`, in which the first job finishes last, so that all others are acknowledged one by one.
`release` ends with `stop()` after every job has been released with a delay of an hour.
"""

import argparse
import asyncio
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pika

from benchmarks.measuring import TOPIC, broker_version
from rabbitdelay import Client, Job, JobSpec, Retry, Worker, aio
from rabbitdelay.private_broker import PrivateBroker

PREFETCH = 500
HOUR_SECONDS = 3600


class Rounds:
    """Runs rounds on one broker, in one topic."""

    def __init__(self, url: str, client: Client, jobs: int) -> None:
        self._url = url
        self._client = client
        self._jobs = jobs
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._queue = client.topology.ready_queue(TOPIC)

    def run(self, front: str, end: str) -> tuple[int, float]:
        """Run one round; return the number of redelivered jobs and the seconds to close."""
        self._client.put_many(JobSpec(TOPIC) for _ in range(self._jobs))
        worker = self._new_worker(front)
        ended_at = self._handle(worker, end)
        running = worker.run(max_jobs=None if end == "release" else self._jobs)
        if running is not None:
            asyncio.run(running)
        took = time.monotonic() - ended_at[0]
        return self._left_over(), took

    def _new_worker(self, front: str) -> Any:  # noqa: ANN401 - of either front end
        kind: Any = Worker if front == "sync" else aio.Worker
        return kind(self._url, concurrency=10, prefetch=PREFETCH)

    def _handle(self, worker: Any, end: str) -> list[float]:  # noqa: ANN401 - of either front end
        """Register the worker's handler; the returned list receives the time of the last job."""
        numbers, ended_at, is_last = itertools.count(1), list[float](), threading.Event()

        def handle(job: Job) -> None:  # noqa: ARG001 - the handler does nothing
            number = next(numbers)
            if number == self._jobs:
                ended_at.append(time.monotonic())
                is_last.set()
                if end == "release":
                    worker.stop()
            if end == "straggle" and number == 1:
                is_last.wait()
            if end == "release":
                raise Retry("later", delay=HOUR_SECONDS)

        worker.handler(TOPIC)(handle)
        return ended_at

    def _left_over(self) -> int:
        """Wait until the broker has requeued unacknowledged messages, and empty the queue."""
        while self._declared().consumer_count:
            time.sleep(0.01)
        time.sleep(0.05)
        left: int = self._declared().message_count
        if left:
            self._channel.queue_purge(self._queue)
        return left

    def _declared(self) -> Any:  # noqa: ANN401 - pika's method
        return self._channel.queue_declare(self._queue, passive=True).method


def measure(
    rounds: Callable[[str, str], tuple[int, float]], front: str, end: str, count: int
) -> Any:  # noqa: ANN401 - a line of JSON
    """Run `rounds` rounds of one kind; return their results."""
    results = [rounds(front, end) for _ in range(count)]
    lost = [left for left, _ in results if left]
    seconds = sorted(took for _, took in results)
    return {
        "front": front,
        "end": end,
        "rounds": count,
        "rounds_with_jobs_again": len(lost),
        "most_jobs_again": max(lost, default=0),
        "end_seconds_median": round(seconds[len(seconds) // 2], 3),
        "end_seconds_most": round(seconds[-1], 3),
    }


def main() -> None:
    """Run all kinds of rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2_000)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)  # each release is a publish
    with PrivateBroker.temporary() as broker, Client(broker.url) as client:
        version = broker_version(broker)
        client.put(TOPIC, delay=HOUR_SECONDS)  # declares the queues
        rounds = Rounds(broker.url, client, chosen.jobs)
        for front, end in itertools.product(("sync", "aio"), ("finish", "straggle", "release")):
            line = measure(rounds.run, front, end, chosen.rounds)
            print(json.dumps({"broker": version, **line}), flush=True)


if __name__ == "__main__":
    main()
