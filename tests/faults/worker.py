"""A process that runs jobs until SIGTERM.

python -m tests.faults.worker NAME FRONT URL NAMESPACE FOLDER
"""

import asyncio
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rabbitdelay import ReservedJob, Retry
from tests.faults.history import HistoryWriter, Kind
from tests.faults.putter import TIMEOUT_SECONDS, TOPICS
from tests.support.fronts import front_named

FRAGILE_TOPIC = "fragile"
"""The topic whose ready queue is deleted, when no job of it is on its way."""
RETRY_SECONDS = 1.3
RUN_SECONDS = 0.05


class Handlers:
    """A handler for each front; both write down when a job begins and how it ends."""

    def __init__(self, history: HistoryWriter) -> None:
        self._history = history

    def run(self, job: ReservedJob) -> None:
        """Run a job in a thread."""
        self._begin(job)
        time.sleep(random.uniform(0, RUN_SECONDS))
        self._end(job)

    async def run_async(self, job: ReservedJob) -> None:
        """Run a job in a task."""
        self._begin(job)
        await asyncio.sleep(random.uniform(0, RUN_SECONDS))
        self._end(job)

    def _begin(self, job: ReservedJob) -> None:
        self._history.write(Kind.DELIVERED, job.id, attempt=job.attempt)

    def _end(self, job: ReservedJob) -> None:
        if job.body["retry"] and job.attempt == 1:
            self._history.write(Kind.RETRIED, job.id, attempt=job.attempt, delay=RETRY_SECONDS)
            raise Retry(delay=RETRY_SECONDS)
        self._history.write(Kind.FINISHED, job.id, attempt=job.attempt)


def main() -> None:
    """Run jobs of all topics."""
    name, front_name, url, namespace, folder = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    handlers = Handlers(HistoryWriter(Path(folder), name))
    functions: dict[str, Callable[[ReservedJob], Awaitable[None] | None]] = {
        "sync": handlers.run,
        "aio": handlers.run_async,
    }
    front = front_named(front_name)
    options: dict[str, Any] = {"concurrency": 10, "prefetch": 50}
    worker = front.worker(
        url, namespace=namespace, connect_timeout=TIMEOUT_SECONDS, grace=5.0, **options
    )
    for topic in (*TOPICS, FRAGILE_TOPIC):
        worker.handler(topic, ttr=300)(functions[front_name])
    front.run(worker)


if __name__ == "__main__":
    main()
