"""The event loops of clients: whether they have anything left to run."""

import asyncio
from collections import Counter
from collections.abc import Callable

FEWEST_PASSES = 3
"""Passes of an event loop before it counts as idle. A task is resumed in the pass after its
wake-up."""
MOST_PASSES = 200


class Loops:
    """The event loops that callbacks were given to. Guarded by the timeline's lock."""

    def __init__(self) -> None:
        self._pending: Counter[asyncio.AbstractEventLoop] = Counter()
        """Number of callbacks that each loop has been given and has not run."""
        self._are_idle = True

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a loop is given a callback."""
        self._pending[loop] += 1
        self._are_idle = False

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a loop has run a callback."""
        self._pending[loop] -= 1

    def disturb(self) -> None:
        """Note that a task is woken, or may have been."""
        self._are_idle = False

    def are_idle(self, ended: Callable[[asyncio.AbstractEventLoop], None]) -> bool:
        """Whether no running loop has anything to run.

        If that is unknown, look, and call `ended` for each loop when that is known.
        """
        running = [loop for loop in self._pending if loop.is_running()]
        if any(self._pending[loop] for loop in running):
            return False
        if self._are_idle:
            return True
        self._are_idle = True
        self._pending = Counter(dict.fromkeys(running, 0))
        for loop in running:
            self._pending[loop] += 1
            loop.call_soon_threadsafe(_look, loop, ended, 1)
        return not running


def _look(
    loop: asyncio.AbstractEventLoop,
    ended: Callable[[asyncio.AbstractEventLoop], None],
    passes: int,
) -> None:
    is_idle = passes > FEWEST_PASSES and not getattr(loop, "_ready", None)
    if is_idle or passes > MOST_PASSES:
        ended(loop)
    else:
        loop.call_soon(_look, loop, ended, passes + 1)
