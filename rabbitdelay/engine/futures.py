"""Futures that stay usable when a signal handler raises.

A signal handler runs between any two steps of the main thread's Python code. In
`concurrent.futures` the lock of a future is a `threading.Condition`, whose `__enter__` is Python
code: a handler that raises there leaves the lock acquired, and the I/O thread then blocks forever
when it sets the result. Here the lock is acquired and released in C, where no handler runs, and no
lock is held while waiting.

This file uses private parts of `concurrent.futures` (`Future._condition`) and `_thread.RLock`;
tests/unit/engine/test_futures.py fails when they change.
"""

import concurrent.futures
from _thread import RLock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TypeVar

Result = TypeVar("Result")


def take_back(future: "concurrent.futures.Future[Result]", callback: Callable[..., None]) -> None:
    """Remove a callback from a future, because some futures stay pending for days.

    concurrent.futures has no public way to do so.
    """
    with suppress(AttributeError, ValueError):
        future._done_callbacks.remove(callback)  # type: ignore[attr-defined] # noqa: SLF001


class _Gate(RLock):  # type: ignore[misc] # final in typeshed, but not in CPython
    """A replacement for the Condition of a future."""

    def __init__(self) -> None:
        self.waiters: deque[Lock] = deque()

    def wait(self, _timeout: float | None = None) -> None:
        """Return at once, because `Future.result` waits before it acquires the lock."""

    def notify_all(self) -> None:
        """Wake every waiter; the future has its result."""
        with suppress(IndexError):  # raised when none is left; a waiter may give up first
            while True:
                self.waiters.popleft().release()


class Future(concurrent.futures.Future[Result]):
    """A future whose waiters may be interrupted at any point."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = _Gate()
        self._condition = self._gate  # type: ignore[assignment] # has the methods that Future uses

    def result(self, timeout: float | None = None) -> Result:
        """Return the result or raise the error; raise TimeoutError if there is neither in time."""
        try:
            self._wait(timeout)
            return super().result(0)
        finally:
            self = None  # type: ignore[assignment] # noqa: PLW0642 - an error's traceback keeps it

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None; raise TimeoutError if the future is not done in time."""
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
            if not self.done():  # it may have been done before the waiter was registered
                waiter.acquire(timeout=-1 if seconds is None else max(0.0, seconds))
        finally:
            with suppress(ValueError):  # raised if `notify_all` has removed it
                self._gate.waiters.remove(waiter)
