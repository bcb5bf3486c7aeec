"""A process that runs jobs until SIGTERM.

python -m tests.faults.worker NAME FRONT URL NAMESPACE FOLDER
"""

import asyncio
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rabbitdelay import PermissionRefused, ReservedJob, Retry
from tests.faults.fleet import REFUSED_EXIT
from tests.faults.history import HistoryWriter, Kind
from tests.faults.putter import HUNG_TTR_SECONDS, TIMEOUT_SECONDS, TOPICS, TTR_SECONDS
from tests.support.fronts import front_named

FRAGILE_TOPIC = "fragile"
"""The topic whose ready queue is deleted while no job of it is in flight."""
SLOW_TOPIC = "slow"
"""The topic whose jobs wait in the workers, which run one of them at a time."""
SLOW_SECONDS = 0.5
RUN_SECONDS = 0.05
HUNG_SECONDS = 2 * HUNG_TTR_SECONDS
LOOK_SECONDS = 0.25
STEP_SECONDS = 2.0
"""The smallest change of the wall clock that counts as a step."""


class Handlers:
    """A handler for each front end; both record when a job begins and how it ends."""

    def __init__(self, history: HistoryWriter) -> None:
        self._history = history

    def run(self, job: ReservedJob) -> None:
        """Run a job in a thread."""
        time.sleep(self._begin(job))
        self._end(job)

    async def run_async(self, job: ReservedJob) -> None:
        """Run a job in a task."""
        await asyncio.sleep(self._begin(job))
        self._end(job)

    def _begin(self, job: ReservedJob) -> float:
        since = _since_hand_out(job)
        self._history.write(Kind.DELIVERED, job.id, attempt=job.attempt, delay=since)
        if not _is_first_and(job, "hangs"):
            return float(job.body.get("seconds", random.uniform(0, RUN_SECONDS)))
        self._history.write(Kind.HUNG, job.id, attempt=job.attempt)
        return HUNG_SECONDS

    def _end(self, job: ReservedJob) -> None:
        if _is_first_and(job, "hangs"):
            return  # the TTR has passed, so this return does not finish the job
        if _is_first_and(job, "retry_delay"):
            delay = job.body["retry_delay"]
            self._history.write(Kind.RETRIED, job.id, attempt=job.attempt, delay=delay)
            raise Retry(delay=delay)
        self._history.write(Kind.FINISHED, job.id, attempt=job.attempt)


def _is_first_and(job: ReservedJob, key: str) -> bool:
    return job.attempt == 1 and bool(job.body.get(key))


def _since_hand_out(job: ReservedJob) -> float:
    """Return the seconds since the TTR began; 0 if the lease is lost."""
    left = job.time_left
    return job.ttr.total_seconds() - left if left else 0.0


def watch_clock(history: HistoryWriter) -> None:
    """Record each step of this process's wall clock away from the real time."""
    start = time.time() - time.monotonic()
    is_off = False
    while True:
        threading.Event().wait(LOOK_SECONDS)
        offset = time.time() - time.monotonic() - start
        if not is_off and abs(offset) > STEP_SECONDS:
            history.write(Kind.EFFECT, detail=f"step-clock {offset:+.0f} s")
        is_off = abs(offset) > STEP_SECONDS


def repair_sleep() -> None:
    """Replace time.sleep, which fails with EINVAL under libfaketime 0.9.10.

    With FAKETIME_DONT_FAKE_MONOTONIC its clock_nanosleep refuses the absolute times that Python
    passes. A wait with a timeout is not affected.
    """

    def sleep(seconds: float, /) -> None:
        threading.Event().wait(seconds)

    time.sleep = sleep  # type: ignore[assignment] # Python's own also takes integer-like objects


def main() -> None:
    """Run jobs of all topics."""
    name, front_name, url, namespace, folder = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    history = HistoryWriter(Path(folder), name)
    if "FAKETIME_TIMESTAMP_FILE" in os.environ:
        repair_sleep()
        threading.Thread(target=watch_clock, args=(history,), daemon=True).start()
    handlers = Handlers(history)
    functions: dict[str, Callable[[ReservedJob], Awaitable[None] | None]] = {
        "sync": handlers.run,
        "aio": handlers.run_async,
    }
    options: dict[str, Any] = {"concurrency": 10, "prefetch": 50}
    with front_named(front_name) as front:
        worker = front.worker(
            url, namespace=namespace, connect_timeout=TIMEOUT_SECONDS, grace=5.0, **options
        )
        for topic in (*TOPICS, FRAGILE_TOPIC):
            worker.handler(topic, ttr=TTR_SECONDS)(functions[front_name])
        worker.handler(SLOW_TOPIC, ttr=TTR_SECONDS, concurrency=1)(functions[front_name])
        try:
            front.run(worker)
        except PermissionRefused:
            if worker.stats().counts.finished:
                raise  # a running worker tolerates it
            sys.exit(REFUSED_EXIT)


if __name__ == "__main__":
    main()
