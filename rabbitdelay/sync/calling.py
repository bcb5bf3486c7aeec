"""Calling: a handler's function with a job, in this thread or on the event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

from rabbitdelay.core.handlers import Handler
from rabbitdelay.sync.reserved import ReservedJob


class HereCaller:
    """Calls functions where it is; coroutine functions on one event loop for all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, handler: Handler, job: ReservedJob) -> Any:  # noqa: ANN401 - what it returns
        """Call it, and return what it returns."""
        arguments = handler.binding.arguments(job)
        if handler.is_async:
            return self._run(handler.function(**arguments), job)
        return handler.function(**arguments)

    def close(self) -> None:
        """Let the event loop end."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, coroutine: Coroutine[Any, Any, Any], job: ReservedJob) -> Any:  # noqa: ANN401
        """Wait for a coroutine, which is cancelled when its job is taken away."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        job.on_lost(partial(_cancel, future))
        return future.result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = "rabbitdelay-handlers"
                threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
            return self._loop


def _cancel(future: Future[Any]) -> None:
    future.cancel()
