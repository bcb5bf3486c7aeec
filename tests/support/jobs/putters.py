"""Threads that put jobs without a pause and record the results."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from rabbitdelay import Client, Job, OutcomeUnknown
from tests.support.patience import patience


@dataclass
class Putters:
    """The results of several threads that put jobs."""

    returned: list[Job] = field(default_factory=list)
    unknown: list[OutcomeUnknown] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def put_until_stopped(self, client: Client, topic: str, delay: timedelta) -> None:
        """Put jobs, one after the other, until `stop` is called."""
        while not self._stop.is_set():
            try:
                self.returned.append(client.put(topic, delay=delay))
            except OutcomeUnknown as error:
                self.unknown.append(error)

    def stop(self) -> None:
        """Stop each thread after its current put."""
        self._stop.set()


@contextmanager
def putting(client: Client, topic: str, delay: timedelta, *, threads: int) -> Iterator[Putters]:
    """Put from this many threads inside the block."""
    putters = Putters()
    arguments = (client, topic, delay)
    started = [
        threading.Thread(target=putters.put_until_stopped, args=arguments) for _ in range(threads)
    ]
    for thread in started:
        thread.start()
    try:
        yield putters
    finally:
        putters.stop()
        for thread in started:
            thread.join(patience(60))
