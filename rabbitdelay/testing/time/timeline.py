"""The timeline: callbacks to run now, and timers for later.

Callbacks run in the order in which they were posted, one at a time. In virtual time, the clock
moves only when nothing is left to do: no callback is posted, no event loop has anything to run, and
every handler has returned or waits itself. Then it moves to the next timer, but only while a call
waits: `advance` for its limit, or `client.pop(wait=10)` for its result.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rabbitdelay.engine.flow import Wait
from rabbitdelay.engine.futures import Future, take_back
from rabbitdelay.testing.time.activity import Activity, Waiter
from rabbitdelay.testing.time.loops import Loops
from rabbitdelay.testing.time.pace import Pace
from rabbitdelay.testing.time.places import Act, LoopPlace, Place, ThreadPlace
from rabbitdelay.testing.time.timers import Timer, Timers

logger = logging.getLogger("rabbitdelay.testing")


@dataclass(frozen=True, slots=True)
class _Goal:
    """The time up to which everything is to be done."""

    limit: float
    reached: Future[None]


class Timeline:
    """Runs callbacks in order, on a thread of its own or by way of it on event loops."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._changed = threading.Condition(threading.RLock())
        self._ready: deque[tuple[Place, Act]] = deque()
        self._running: set[Place] = set()
        """The places in which a callback runs. More than one if a callback waits for another."""
        self._timers = Timers()
        self._activity = Activity()
        self._goal: _Goal | None = None
        self._loops = Loops()
        self._own_place = ThreadPlace()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.errors: list[BaseException] = []
        """Errors that callbacks raised."""

    @property
    def is_virtual(self) -> bool:
        """Whether time moves only on request."""
        return self._pace.is_virtual

    def time(self) -> float:
        """Return the Unix time in seconds."""
        return self._pace.time()

    def monotonic(self) -> float:
        """Return the seconds on a clock that is never set."""
        return self._pace.monotonic()

    # From any thread

    def post(self, place: Place, act: Act) -> None:
        """Run a callback after those posted before."""
        with self._changed:
            self._ready.append((place, act))
            self._wake()

    def post_last(self, place: Place, act: Act) -> None:
        """Run a callback after everything else that is to be done now."""

        def look() -> None:
            if self._ready:
                self.post(place, look)
            else:
                act()

        self.post(place, look)

    def call_later(
        self, place: Place, seconds: float, act: Act, *, may_be_late: bool = False
    ) -> Timer:
        """Run a callback after a delay."""
        with self._changed:
            due = self.time() + max(0.0, seconds)
            timer = self._timers.add(due, place, act, may_be_late=may_be_late)
            self._wake()
        return timer

    def advance(self, limit: float) -> Future[None]:
        """Do everything that is due up to a time; return a future for the end of it."""
        reached: Future[None] = Future()
        reached.set_running_or_notify_cancel()
        with self._changed:
            assert self._goal is None, "the clock is already being advanced"
            self._goal = _Goal(limit, reached)
            self._loops.disturb()
            self._wake()
        return reached

    def give_up(self) -> None:
        """Stop to advance."""
        with self._changed:
            self._goal = None

    def take_errors(self) -> list[BaseException]:
        """Return what callbacks have raised since the last call."""
        errors, self.errors = self.errors, []
        return errors

    def close(self) -> None:
        """End the thread. Callbacks that have not run are dropped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # Handlers and waits

    def begin_handler(self, token: object, worker: Callable[[], object]) -> None:
        """Note that a handler is about to run; `worker` returns its thread or task."""
        with self._changed:
            self._activity.begin_handler(token, worker)

    def end_handler(self, token: object) -> None:
        """Note that a handler has returned, or is not waited for any more."""
        with self._changed:
            self._activity.end_handler(token)
            self._wake()

    @contextmanager
    def waiting(self, wait: Wait, wake: Act) -> Iterator[None]:
        """Count the caller as waiting, until the future is done or the time is over.

        `wake` is called then. It may be called more than once. The caller counts as waiting only
        while its end is certain to be noticed. The clock could otherwise pass that end, or
        `advance` return before it.
        """
        with self._changed:
            waiter = self._activity.waiter(_current_task(), wait.awaited)

        def end(_future: object = None) -> None:
            with self._changed:
                wake()
                self._end_wait(waiter)

        timer = None
        try:
            wait.future.add_done_callback(end)
            if wait.seconds is not None and not wait.is_real:
                timer = self.call_later(self._own_place, wait.seconds, end)
            with self._changed:
                self._activity.begin_wait(waiter)
                self._wake()
            yield
        finally:
            self._end_wait(waiter)
            take_back(wait.future, end)
            if timer is not None:
                timer.cancel()

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Run callbacks within a callback that waits, except in the places that it blocks."""
        while not is_over() and self._run_next(is_over):
            pass

    @property
    def is_here(self) -> bool:
        """Whether the caller is a callback on the thread of the timeline."""
        return threading.current_thread() is self._thread

    def notify(self) -> None:
        """Look again at what to do."""
        with self._changed:
            self._changed.notify_all()

    def _end_wait(self, waiter: Waiter) -> None:
        with self._changed:
            self._activity.end_wait(waiter)
            self._wake()
            self._loops.disturb()

    def _wake(self) -> None:
        if self._thread is None:
            name = "rabbitdelay-memory"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        elif threading.current_thread() is not self._thread:
            self._changed.notify_all()

    # On the thread of the timeline

    def _run(self) -> None:
        while self._run_next(lambda: False):
            pass

    def _run_next(self, is_over: Callable[[], bool]) -> bool:
        """Wait for the next callback and run it; return False at the end."""
        with self._changed:
            found = self._next(is_over)
            if found is None:
                return False
            place, act = found
            if isinstance(place, LoopPlace):
                self._loops.begin(place.loop)
        if isinstance(place, LoopPlace):
            place.run(act, partial(self._end_on_loop, place.loop))
        else:
            self._run_here(place, act)
        return True

    def _run_here(self, place: ThreadPlace, act: Act) -> None:
        self._running.add(place)
        try:
            place.run(act)
        except Exception as error:
            logger.exception("a callback failed")
            self.errors.append(error)
        finally:
            self._running.discard(place)

    def _end_on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._changed:
            self._loops.end(loop)
            self._wake()

    def _next(self, is_over: Callable[[], bool]) -> tuple[Place, Act] | None:
        while not (self._is_closed or is_over()):
            self._take_due()
            if self._ready and self._ready[0][0] not in self._running:
                return self._ready.popleft()
            for position, found in enumerate(self._ready):
                if found[0] not in self._running:
                    del self._ready[position]
                    return found
            if not self._move():
                self._changed.wait(self._real_seconds())
        return None

    def _take_due(self, late_seconds: float | None = None) -> bool:
        """Post the timers that are due; return whether there are any."""
        late = self._pace.late_seconds if late_seconds is None else late_seconds
        due = [*self._timers.take_due(self.time(), late_seconds=late)]
        self._ready.extend((timer.place, timer.run) for timer in due)
        return bool(due)

    def _real_seconds(self) -> float | None:
        dues = [self._timers.next_due(), self._timers.next_due(may_be_late=True)]
        first = min((due for due in dues if due is not None), default=None)
        return None if first is None else self._pace.real_seconds_until(first)

    # Moving the clock

    def _move(self) -> bool:
        """Move the clock if that is wanted and nothing is left to do; return whether it moved."""
        is_wanted = self._goal is not None or self._activity.is_awaited
        if not (self._pace.is_virtual and is_wanted) or self._is_busy():
            return False
        due = self._timers.next_due()
        if self._goal is not None:
            return self._move_towards(self._goal, due)
        late_seconds = self._pace.late_seconds
        if due is None:
            due, late_seconds = self._timers.next_due(may_be_late=True), 0.0
        if due is None:
            return False
        self._pace.move_to(due)
        return self._take_due(late_seconds)

    def _move_towards(self, goal: _Goal, due: float | None) -> bool:
        if due is not None and due <= goal.limit:
            self._pace.move_to(due)
            return True
        self._pace.move_to(goal.limit)
        if self._take_due(late_seconds=0.0):
            return True
        self._goal = None
        goal.reached.set_result(None)
        return False

    def _is_busy(self) -> bool:
        """Whether anything may still be done at this time."""
        return bool(
            self._ready or self._activity.is_busy or not self._loops.are_idle(self._end_on_loop)
        )


def _current_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
