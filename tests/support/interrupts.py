"""Signals with a handler that raises in the main thread, as alarms and notebooks use them."""

import random
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

AGAIN_SECONDS = 1e-5


class Interrupted(Exception):
    """Raised by the signal handler."""


class Alarms:
    """Interrupts calls of the main thread with SIGALRM at random moments inside the block."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._is_armed = False

    def __enter__(self) -> Self:
        assert threading.current_thread() is threading.main_thread()
        self._timer = signal.setitimer(signal.ITIMER_REAL, 0)  # the timer of pytest-timeout
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        signal.setitimer(signal.ITIMER_REAL, *self._timer)

    def interrupts(self, call: Callable[[], object], *, within_seconds: float) -> bool:
        """Call a function; return whether a signal interrupted it before it returned."""
        try:
            self._is_armed = True
            signal.setitimer(signal.ITIMER_REAL, self._draw.uniform(1e-6, within_seconds))
            call()
            self._is_armed = False
        except Interrupted:
            return True
        return False

    def interrupt_often(
        self, call: Callable[[], object], *, times: int, within_seconds: float
    ) -> None:
        """Call a function repeatedly until signals have interrupted it `times` times."""
        interrupted = 0
        while interrupted < times:
            interrupted += self.interrupts(call, within_seconds=within_seconds)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        if self._is_armed and frame is not None and _is_in_coverage(frame):
            # In coverage, which traces the call, and would keep its lock forever.
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        elif self._is_armed:
            self._is_armed = False
            raise Interrupted


def _is_in_coverage(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("coverage.")
