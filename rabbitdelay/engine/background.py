"""Run blocking functions that have no asynchronous equivalent, each on a thread of its own."""

import threading
from collections.abc import Callable
from typing import TypeVar

from rabbitdelay.engine.futures import Future

Result = TypeVar("Result")


def in_background(function: Callable[[], Result]) -> Future[Result]:
    """Run a function on a new daemon thread; return a future for its result."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised in the waiting caller
            future.set_exception(error)

    threading.Thread(target=run, name="rabbitdelay-background", daemon=True).start()
    return future
