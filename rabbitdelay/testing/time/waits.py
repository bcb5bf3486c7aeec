"""Waiting for futures on a timeline."""

import asyncio
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import Any

from rabbitdelay.engine.flow import Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.testing.time.timeline import Timeline


class Waits:
    """Waits for futures. A wait in virtual time lets the clock move to its end."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def wait(self, wait: Wait) -> Any:  # noqa: ANN401 - the result of the future
        """Block the thread until a future is done; raise TimeoutError after a time."""
        over: Future[None] = Future()

        def wake() -> None:
            _set(over)
            self._timeline.notify()

        if not wait.future.done():
            with self._timeline.waiting(wait, wake):
                if self._timeline.is_here:
                    self._timeline.run_until(over.done)
                else:
                    with suppress(TimeoutError):
                        over.result(wait.seconds if wait.is_real else None)
        return _outcome(wait.future)

    async def wait_async(self, wait: Wait) -> Any:  # noqa: ANN401 - the result of the future
        """Await a future; raise TimeoutError after a time."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(over.set)

        if not wait.future.done():
            with self._timeline.waiting(wait, wake):
                async with asyncio.timeout(wait.seconds if wait.is_real else None):
                    await over.wait()
        return _outcome(wait.future)


def _set(future: Future[None]) -> None:
    with suppress(InvalidStateError):  # two threads may wake a wait
        future.set_result(None)


def _outcome(future: Future[Any]) -> Any:  # noqa: ANN401 - its result
    if not future.done():
        raise TimeoutError
    return future.result()
