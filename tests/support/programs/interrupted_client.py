"""A program whose main thread is interrupted by a raising signal handler, again and again.

Its arguments are a URL, a namespace and the number of interrupts. Meanwhile another thread puts
through the same client. The program prints how the client came through.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle

from rabbitdelay import Client, Job, JobSpec, PutManyFailed
from tests.support.interrupts import Alarms
from tests.support.patience import patience, wait_until

ROUND = 50
"""Number of interrupts of one kind of call before the next kind has its turn."""


def main(url: str, namespace: str, times: int) -> None:
    """Interrupt a client, and check that it still works."""
    with Client(url, namespace=namespace, stabilise_seconds=0, timeout=patience(20)) as client:
        for _ in range(20):
            client.put("t", delay=60)
        stop = threading.Event()
        others: list[Job] = []
        thread = threading.Thread(target=put_until, args=(client, others, stop), daemon=True)
        thread.start()
        interrupt(client, times)
        stop.set()
        thread.join(patience(30))
        publisher = client._engine.connections._publishers.opened
        assert publisher is not None
        client.put("t", id="last")
        wait_until(lambda: publisher.window.puts == 0, what="the window is empty")
        sys.stdout.write(json.dumps({"others": len(others), "hangs": thread.is_alive()}))


def put_until(client: Client, returned: list[Job], stop: threading.Event) -> None:
    """Put from a second thread, which no signal interrupts."""
    while not stop.is_set():
        returned.append(client.put("t", delay=60))
        time.sleep(0.01)


def put_three(client: Client) -> None:
    """Put three jobs; an interrupt inside the generator surfaces as a PutManyFailed."""
    try:
        client.put_many(JobSpec("t", delay=60) for _ in range(3))
    except PutManyFailed as error:
        raise error.__cause__ or error from None


def interrupt(client: Client, times: int) -> None:
    """Interrupt calls of every kind."""
    calls: tuple[Callable[[], object], ...] = (
        lambda: client.put("t", delay=60),
        lambda: client.put_nowait("t", delay=60).result(),
        lambda: put_three(client),
        lambda: client.delete("some"),
        lambda: client.replace("t", id="one", delay=60),
    )
    with Alarms(seed=times) as alarms:
        for done, call in zip(range(0, times, ROUND), cycle(calls), strict=False):
            began = time.monotonic()
            call()
            usual = time.monotonic() - began
            alarms.interrupt_often(call, times=min(ROUND, times - done), within_seconds=usual)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
