"""A process that puts jobs and deletes half of them, until SIGTERM.

python -m tests.faults.putter NAME FRONT URL NAMESPACE FOLDER SEED
"""

import heapq
import logging
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rabbitdelay import Client, Job
from rabbitdelay.errors import RabbitDelayError
from tests.faults.history import HistoryWriter, Kind
from tests.support.fronts import front_named

THREADS = 4
WAIT_SECONDS = 0.1
TOPICS = ("orders", "mails", "reports")
DELAYS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)
RETRIED_SHARE = 0.2
RETRY_DELAYS = (1.3, 3.0, 6.0)
"""Some exceed the checker's bound for deleted jobs, so that a deleted retry counts."""
HUNG_SHARE = 0.03
TTR_SECONDS = 300.0
HUNG_TTR_SECONDS = 2.0
DELETED_SHARE = 0.5
TIMEOUT_SECONDS = 60.0
"""Longer than any fault, so that most puts during an outage return in the end."""


@dataclass(frozen=True, slots=True)
class FirstAttempt:
    """The behaviour of a job's handler on the first attempt; the second one finishes the job."""

    retry_delay: float = 0.0
    """The delay that the handler asks for; 0 if it does not ask for a retry."""
    hangs: bool = False
    """Whether the handler exceeds the TTR of the job."""

    @classmethod
    def drawn(cls, chosen: random.Random) -> Self:
        """Return a random behaviour: usually none, sometimes a retry or a handler that hangs."""
        share = chosen.random()
        if share < HUNG_SHARE:
            return cls(hangs=True)
        return cls(chosen.choice(RETRY_DELAYS)) if share < HUNG_SHARE + RETRIED_SHARE else cls()

    @property
    def body(self) -> dict[str, float | bool]:
        """The body of the job, which instructs the handler."""
        return {"retry_delay": self.retry_delay, "hangs": self.hangs}

    @property
    def ttr(self) -> float:
        """The TTR of the job, in seconds."""
        return HUNG_TTR_SECONDS if self.hangs else TTR_SECONDS

    @property
    def seconds_until_next(self) -> float:
        """The time between the first and the second attempt; 0 if there is one attempt."""
        return HUNG_TTR_SECONDS if self.hangs else self.retry_delay


@dataclass
class Putter:
    """One thread's load: puts, and deletes at random moments before their jobs are finished."""

    name: str
    client: Client
    history: HistoryWriter
    random: random.Random
    stop: threading.Event
    _count: int = 0
    _deletes: list[tuple[float, int, Job]] = field(default_factory=list)

    def run(self) -> None:
        """Put and delete until told to stop."""
        while not self.stop.wait(self.random.uniform(0, 2 * WAIT_SECONDS)):
            self.delete_due()
            self.put()

    def put(self) -> None:
        """Put one job, and schedule its delete if it gets one."""
        self._count += 1
        id = f"{self.name}-{self._count}"  # noqa: A001 - the word of the domain
        topic, delay = self.random.choice(TOPICS), self.random.choice(DELAYS)
        first = FirstAttempt.drawn(self.random)
        put_at = self.history.write(Kind.PUT, id, delay=delay)
        try:
            job = self.client.put(topic, first.body, id=id, delay=delay, ttr=first.ttr)
        except RabbitDelayError as error:
            self.history.write(Kind.UNKNOWN, id, detail=f"{type(error).__name__}: {error}")
            return
        self.history.write(Kind.CONFIRMED, id)
        if self.random.random() < DELETED_SHARE:
            at = self.random.uniform(put_at, put_at + delay + first.seconds_until_next)
            heapq.heappush(self._deletes, (at, self._count, job))

    def delete_due(self) -> None:
        """Delete the jobs whose delete is due: by id, or by the job that put returned."""
        while self._deletes and self._deletes[0][0] <= time.monotonic():
            _, _, job = heapq.heappop(self._deletes)
            self.history.write(Kind.DELETE, job.id)
            try:
                self.client.delete(self.random.choice((job, job.id)), timeout=TIMEOUT_SECONDS)
            except RabbitDelayError:
                continue  # the delete may or may not be recorded, so the job may run
            self.history.write(Kind.DELETED, job.id)


def main() -> None:
    """Put from several threads, through one client."""
    name, front_name, url, namespace, folder, seed = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    history = HistoryWriter(Path(folder), name)
    options = {"timeout": TIMEOUT_SECONDS, "connect_timeout": TIMEOUT_SECONDS}
    with (
        front_named(front_name) as front,
        front.client(url, namespace=namespace, **options) as client,
    ):
        putters = [
            Putter(f"{name}-{n}", client, history, random.Random(f"{name} {seed} {n}"), stop)
            for n in range(THREADS)
        ]
        threads = [threading.Thread(target=putter.run) for putter in putters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
