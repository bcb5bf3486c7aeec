"""Activity outside the callbacks: waits, and running handlers and workers."""

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Waiter:
    """A thread or a task that waits, or is about to."""

    handler: object
    """The handler within which it waits; None for any other thread or task."""
    is_real: bool
    """Whether it waits for this machine, so that time does not have to move for it."""
    has_ended: bool = False
    """Whether the wait is over, which may happen before it is counted."""


class Activity:
    """Counts what has to end or to wait before time may move. Guarded by the timeline's lock."""

    def __init__(self) -> None:
        self._handlers: dict[object, Callable[[], object]] = {}
        """For each running handler, a function that returns its thread or task."""
        self._waiters: dict[Waiter, None] = {}

    def begin_handler(self, handler: object, worker: Callable[[], object]) -> None:
        """Note that a handler is about to run."""
        self._handlers[handler] = worker

    def end_handler(self, handler: object) -> None:
        """Note that a handler has returned, or is not waited for any more."""
        self._handlers.pop(handler, None)

    def waiter(self, task: object, *, is_real: bool) -> Waiter:
        """Return a waiter for the current thread or task. It counts from `begin_wait` on."""
        return Waiter(self._handler_in(threading.current_thread(), task), is_real)

    def begin_wait(self, waiter: Waiter) -> None:
        """Note that a thread or a task waits, unless its wait is over already."""
        if not waiter.has_ended:
            self._waiters[waiter] = None

    def end_wait(self, waiter: Waiter) -> None:
        """Note the end of a wait, before its thread or task goes on."""
        waiter.has_ended = True
        self._waiters.pop(waiter, None)

    @property
    def is_busy(self) -> bool:
        """Whether a handler runs and does not wait."""
        waiting = {id(waiter.handler) for waiter in self._waiters}
        return any(id(handler) not in waiting for handler in self._handlers)

    @property
    def is_awaited(self) -> bool:
        """Whether anything but a handler waits, so that time has to move by itself."""
        return any(waiter.handler is None and not waiter.is_real for waiter in self._waiters)

    def _handler_in(self, thread: threading.Thread, task: object) -> object:
        for handler, worker in self._handlers.items():
            runs_in = worker()
            if runs_in is not None and (runs_in is thread or runs_in is task):
                return handler
        return None
