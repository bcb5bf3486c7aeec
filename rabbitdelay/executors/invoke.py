"""Call a handler's function with a job, on this thread or on an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.executors.reserved_job import ReservedJob


class LocalCaller:
    """Calls functions on the calling thread, and coroutine functions on one shared event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, handler: Handler, job: ReservedJob) -> Any:  # noqa: ANN401 - the handler's value
        """Call the handler and return its value."""
        arguments = handler.binding.arguments(job)
        if handler.is_async:
            return self._run(handler.function(**arguments), job)
        return handler.function(**arguments)

    def close(self) -> None:
        """Stop the event loop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, coroutine: Coroutine[Any, Any, Any], job: ReservedJob) -> Any:  # noqa: ANN401
        """Wait for a coroutine, which is cancelled if its job's lease is lost."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        job.on_lost(partial(_cancel, future))
        return future.result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = "rabbitdelay-handlers"
                run = partial(_run_until_stopped, self._loop)
                threading.Thread(target=run, name=name, daemon=True).start()
            return self._loop


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, then cancel the remaining tasks."""
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        if not task.cancelling():  # a second cancel would interrupt its cleanup
            task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()


def _cancel(future: Future[Any]) -> None:
    future.cancel()
