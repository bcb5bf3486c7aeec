"""Futures that survive a signal handler that raises.

A handler runs between any two steps of the main thread's Python code. In `concurrent.futures` the
lock of a future is a `threading.Condition`, whose `__enter__` is such code: a handler that raises
in it leaves the lock taken, and the I/O thread then waits forever to set the result. Here the lock
is entered and left in C, where no handler runs, and waiting holds no lock at all.

This file uses private parts of `concurrent.futures` (`Future._condition`) and `_thread.RLock`;
tests/unit/engine/test_futures.py fails when they change.
"""

import concurrent.futures
from _thread import RLock
from collections import deque
from contextlib import suppress
from threading import Lock
from typing import TypeVar

Result = TypeVar("Result")


class _Gate(RLock):  # type: ignore[misc] # final in typeshed, and not in CPython
    """Takes the place of a future's Condition."""

    def __init__(self) -> None:
        self.waiters: deque[Lock] = deque()

    def wait(self, _timeout: float | None = None) -> None:
        """Return at once: `Future.result` has waited before it took the lock."""

    def notify_all(self) -> None:
        """Let everyone go on; the future has its result."""
        with suppress(IndexError):  # when there is none left; one may give up meanwhile
            while True:
                self.waiters.popleft().release()


class Future(concurrent.futures.Future[Result]):
    """A future whose waiter may be interrupted at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = _Gate()
        self._condition = self._gate  # type: ignore[assignment] # what Future needs of one

    def result(self, timeout: float | None = None) -> Result:
        """Return the result, or raise the error; TimeoutError when there is none in time."""
        try:
            self._wait(timeout)
            return super().result(0)
        finally:
            self = None  # type: ignore[assignment] # noqa: PLW0642 - an error's traceback keeps it

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, if there is one; TimeoutError when it is not done in time."""
        try:
            self._wait(timeout)
            return super().exception(0)
        finally:
            self = None  # type: ignore[assignment] # noqa: PLW0642 - an error's traceback keeps it

    def _wait(self, seconds: float | None) -> None:
        if self.done():
            return
        waiter = Lock()
        waiter.acquire()
        self._gate.waiters.append(waiter)
        try:
            if not self.done():  # else it may have been done before the waiter was there
                waiter.acquire(timeout=-1 if seconds is None else max(0.0, seconds))
        finally:
            with suppress(ValueError):  # not there any more: it was released
                self._gate.waiters.remove(waiter)
