"""Flows: operations that wait, written once as generators that each front end drives in its way.

A flow yields the step to wait for, and receives the result or the error. executors/blocking.py
waits by blocking the thread, aio/awaiting.py by awaiting on the event loop. Anything that ends the
waiting, including Ctrl-C and task cancellation, is thrown into the flow, which cleans up there.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import InvalidJob
from rabbitdelay.system_time import TimeSource, monotonic_seconds

Result = TypeVar("Result")
Item = TypeVar("Item")
TURN = 100
"""Number of items taken from a synchronous iterable before the event loop gets a turn."""


class Awaited(Enum):
    """The kind of event that ends a wait; it matters where a test moves the clock."""

    BROKER = auto()
    """The broker, or a time on its clock. The clock may move meanwhile."""
    MACHINE = auto()
    """Work of this machine, such as a thread. It takes real time, and the clock stands still."""
    SIGNAL = auto()
    """A signal or a request, which may never come. The wait takes real time, the clock may move."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a future, up to a timeout in seconds, after which TimeoutError is thrown."""

    future: Future[Any]
    seconds: float | None = None
    awaited: Awaited = Awaited.BROKER

    @property
    def is_real(self) -> bool:
        """Whether it takes real time, also where a test moves the clock."""
        return self.awaited is not Awaited.BROKER


@dataclass(frozen=True, slots=True)
class Sleep:
    """Sleep for a number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Next:
    """Wait for the next item of an asynchronous iterator; its StopAsyncIteration is thrown."""

    iterator: AsyncIterator[Any]


@dataclass(slots=True)
class Call:
    """Call a function of the user, and await its result if that is a coroutine."""

    function: Callable[[], Any]


class End(Enum):
    """The type of END, which marks the end of a Source."""

    END = auto()


END: Literal[End.END] = End.END
Step = Wait | Sleep | Next | Call
Flow = Generator[Step, Any, Result]


class Source(Generic[Item]):
    """Items from the caller, taken one by one from a synchronous or an asynchronous iterable."""

    def __init__(self, items: Iterable[Item] | AsyncIterable[Item]) -> None:
        self._plain = iter(items) if isinstance(items, Iterable) else None
        self._asynchronous = aiter(items) if isinstance(items, AsyncIterable) else None
        if self._plain is None and self._asynchronous is None:
            raise InvalidJob(f"expected an iterable, not {type(items).__name__}")
        self._taken = 0

    def next(self) -> "Flow[Item | End]":
        """Return the next item, or END."""
        if self._plain is None:
            assert self._asynchronous is not None
            try:
                item: Item = yield Next(self._asynchronous)
            except StopAsyncIteration:
                return END
            return item
        self._taken += 1
        if self._taken % TURN == 0:
            yield Sleep(0)  # give an event loop time for its other tasks
        return next(self._plain, END)


class Bell:
    """A notification that some state has changed, for any number of waiters. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._next: Future[None] | None = None

    def ring(self) -> None:
        """Notify the current waiters of a change."""
        if self._next is None:
            return
        with self._lock:
            rung, self._next = self._next, None
        if rung is not None:
            rung.set_result(None)

    def next(self) -> Future[None]:
        """Return a future for the next notification. Call this before checking the state."""
        with self._lock:
            if self._next is None:
                self._next = Future()
                self._next.set_running_or_notify_cancel()
            return self._next


def until(
    bell: Bell,
    is_true: Callable[[], bool],
    deadline: float | None,
    monotonic: TimeSource = monotonic_seconds,
) -> Flow[bool]:
    """Wait until a condition is true or until the deadline on the monotonic clock.

    Return whether it is true.
    """
    while True:
        changed = bell.next()
        if is_true():
            return True
        rest = None if deadline is None else deadline - monotonic()
        if rest is not None and rest <= 0:
            return False
        try:
            yield Wait(changed, rest)
        except TimeoutError:
            return is_true()
