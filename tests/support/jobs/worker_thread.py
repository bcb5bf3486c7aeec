"""A worker in a thread, which ends with the block."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rabbitdelay import ReservedJob, Worker
from tests.support.patience import patience, wait_until


@contextmanager
def working(worker: Worker, **options: Any) -> Iterator[Worker]:  # noqa: ANN401 - passed on
    """Run a worker in a thread inside the block; raise at the end what its `run` raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(**options)
        except BaseException as error:  # noqa: BLE001 - raised by the block
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: worker._dispatcher is not None or errors)
        yield worker
    finally:
        worker.stop()
        thread.join(patience(40))
        assert not thread.is_alive(), "the worker did not stop"
    if errors:
        raise errors[0]


def handed_out_at(job: ReservedJob, ttr_seconds: float) -> float:
    """Return the monotonic time at which a job's lease began: its handler may start later."""
    while True:
        before = time.monotonic()
        left_seconds = job.time_left
        if time.monotonic() - before < 0.02:  # otherwise this thread had to wait in between
            return before + left_seconds - ttr_seconds
