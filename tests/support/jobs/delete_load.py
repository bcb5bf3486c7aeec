"""Processes that put, delete and run the same jobs, and the records of what they did."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from rabbitdelay import Client, JobSpec
from tests.support.programs.script import Process

PROPAGATION_SECONDS = 2.0
"""Time allowed until a worker knows of a delete: a few ms, more when two cores do all the work."""

# Prints a line when it is ready, and one with the time for each job that it runs.
WORKER = """
import logging, os, sys, time
from tests.support.fronts import front_named
for name in ("pika", "aio_pika", "aiormq"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
name, url, namespace = sys.argv[1:]
front = front_named(name)
worker = front.worker(url, namespace=namespace, concurrency=20, stabilise_seconds=0)
@worker.handler("t", ttr=60, backoff=0)
def work(job):
    os.write(1, f"ran {job.id} {time.time():.6f}\\n".encode())
front.run(worker)
"""

# Deletes its share of every second job, each at a random moment before its due time.
DELETER = """
import os, random, sys, time
from tests.support.fronts import front_named
name, url, namespace, share, shares, count, plan = sys.argv[1:]
share, shares, count = int(share), int(shares), int(count)
with front_named(name).client(url, namespace=namespace, stabilise_seconds=0, timeout=30) as client:
    client.delete(f"warm-up-{share}")
    os.write(1, b"ready\\n")
    while not os.path.exists(plan):
        time.sleep(0.01)
    first_due, span = map(float, open(plan).read().split())
    began, chosen = time.time(), random.Random(share)
    dues = {n: first_due + span * n / count for n in range(2 * share, count, 2 * shares)}
    moments = sorted((chosen.uniform(began, due), n) for n, due in dues.items() if due > began)
    for moment, n in moments:
        time.sleep(max(0.0, moment - time.time()))
        client.delete(f"job-{n}")
        os.write(1, f"deleted job-{n} {time.time():.6f}\\n".encode())
os.write(1, b"done\\n")
"""

# A consumer that writes snapshots early, until it is killed.
COMPACTOR = """
import sys, time
from rabbitdelay import Client
from rabbitdelay.engine.deletes import snapshot_writer
snapshot_writer.SNAPSHOT_EVERY = int(sys.argv[3])
client = Client(sys.argv[1], namespace=sys.argv[2], stabilise_seconds=0)
client._log_reader()
print("ready", flush=True)
time.sleep(600)
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate at which this machine puts jobs now, so that a busy machine gets more time."""

    trial_seconds: float

    @classmethod
    def measure(cls, client: Client, count: int) -> "Pace":
        """Put as many jobs into another topic as the test will put, twice, and time the second.

        The first declares the hold queues, which on a busy machine takes longer than the puts.
        """
        put_over(client, count, time.time() + 3, 30, topic="trial")
        began = time.monotonic()
        put_over(client, count, time.time() + 3, 30, topic="trial")
        return cls(time.monotonic() - began)

    def lead(self) -> float:
        """Return the seconds from the first put until the first job is due."""
        return 3 + 4 * self.trial_seconds

    def span(self, at_least: float) -> float:
        """Return the seconds from the first due time to the last."""
        return max(at_least, 6 * self.trial_seconds)


def put_over(
    client: Client, count: int, first_due: float, span: float, *, topic: str = "t"
) -> None:
    """Put `count` jobs with evenly spaced due times."""
    client.put_many(
        JobSpec(topic, id=f"job-{n}", at=datetime.fromtimestamp(first_due + span * n / count, UTC))
        for n in range(count)
    )


def times(processes: Iterable[Process], word: str) -> dict[str, float]:
    """Return the last time at which each job was run or deleted, by job id."""
    found: dict[str, float] = {}
    for process in processes:
        for line in list(process.lines):
            first, *others = line.split()
            if first == word and len(others) == 2:  # a killed process may cut off its last line
                found[others[0]] = max(float(others[1]), found.get(others[0], 0.0))
    return found


@dataclass(frozen=True, slots=True)
class Books:
    """The times of deletes and runs, and the conclusions drawn from them."""

    deleted: dict[str, float]
    """The time at which each delete returned."""
    ran: dict[str, float]
    """The time at which each job last ran."""

    @property
    def too_late(self) -> set[str]:
        """Jobs that ran before their delete returned."""
        return {name for name, at in self._both() if at <= 0}

    @property
    def just_missed(self) -> set[str]:
        """Jobs that were handed out within the propagation time of their delete."""
        return {name for name, at in self._both() if 0 < at <= PROPAGATION_SECONDS}

    @property
    def wrong(self) -> dict[str, float]:
        """Deleted jobs that ran nevertheless, with the seconds between delete and run."""
        return {name: at for name, at in self._both() if at > PROPAGATION_SECONDS}

    @property
    def slowest_ms(self) -> float:
        """The longest time from a delete until a run of its job, in milliseconds."""
        return max((at * 1000 for _, at in self._both() if at > 0), default=0.0)

    def __str__(self) -> str:
        return (
            f"{len(self.deleted)} deleted, {len(self.ran)} ran; {len(self.too_late)} deletes came "
            f"too late, {len(self.just_missed)} within the propagation time "
            f"(at most {self.slowest_ms:.1f} ms), {len(self.wrong)} ran although deleted"
        )

    def _both(self) -> list[tuple[str, float]]:
        return [
            (name, self.ran[name] - at) for name, at in self.deleted.items() if name in self.ran
        ]
