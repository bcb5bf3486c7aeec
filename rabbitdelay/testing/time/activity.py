"""Activity outside the callbacks: waits, and running handlers and workers."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rabbitdelay.engine.flow import Awaited


@dataclass(slots=True, eq=False)
class Waiter:
    """A thread or a task that waits, or is about to."""

    handler: object
    """The handler within which it waits; None for any other thread or task."""
    awaited: Awaited
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

    def waiter(self, task: object, awaited: Awaited) -> Waiter:
        """Return a waiter for the current thread or task. It counts from `begin_wait` on."""
        return Waiter(self._handler_in(threading.current_thread(), task), awaited)

    def begin_wait(self, waiter: Waiter) -> None:
        """Note that a thread or a task waits, unless its wait is over already.

        One that waits for this machine counts as busy: it goes on without the clock.
        """
        if not (waiter.has_ended or waiter.awaited is Awaited.MACHINE):
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
        return any(
            waiter.handler is None and waiter.awaited is Awaited.BROKER for waiter in self._waiters
        )

    def _handler_in(self, thread: threading.Thread, task: object) -> object:
        for handler, worker in self._handlers.items():
            runs_in = worker()
            if runs_in is not None and (runs_in is thread or runs_in is task):
                return handler
        return None
