"""Flows: what a caller waits for, written once as generators that each front drives in its way.

A flow yields what to wait for and is sent the result, or is thrown the error. sync/driving.py waits
with the thread, aio/awaiting.py with the event loop. Whatever ends the waiting, also a Ctrl-C or a
cancelled task, is thrown into the flow: it cleans up there.
"""

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import InvalidJob

Result = TypeVar("Result")
Item = TypeVar("Item")
TURN = 100
"""After so many of an iterable that never waits, others get a turn."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a future, for at most so long: then TimeoutError is thrown."""

    future: Future[Any]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Next:
    """Wait for the next of an asynchronous iterator: StopAsyncIteration is thrown at its end."""

    iterator: AsyncIterator[Any]


@dataclass(slots=True)
class Call:
    """Call a function of the user's, and wait for what it returns if that is a coroutine."""

    function: Callable[[], Any]


class End(Enum):
    """What comes after the last one."""

    END = auto()


END: Literal[End.END] = End.END
Step = Wait | Sleep | Next | Call
Flow = Generator[Step, Any, Result]


class Source(Generic[Item]):
    """What a caller gives one after the other, in a plain iterable or an asynchronous one."""

    def __init__(self, items: Iterable[Item] | AsyncIterable[Item]) -> None:
        self._plain = iter(items) if isinstance(items, Iterable) else None
        self._asynchronous = aiter(items) if isinstance(items, AsyncIterable) else None
        if self._plain is None and self._asynchronous is None:
            raise InvalidJob(f"give an iterable, not {type(items).__name__}")
        self._taken = 0

    def next(self) -> "Flow[Item | End]":
        """The next one, or END."""
        if self._plain is None:
            assert self._asynchronous is not None
            try:
                item: Item = yield Next(self._asynchronous)
            except StopAsyncIteration:
                return END
            return item
        self._taken += 1
        if self._taken % TURN == 0:
            yield Sleep(0)  # an event loop has other things to do as well
        return next(self._plain, END)


class Bell:
    """Rings whenever something has changed, for whoever waits for that; from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._next: Future[None] | None = None

    def ring(self) -> None:
        """Something has changed."""
        if self._next is None:
            return
        with self._lock:
            rung, self._next = self._next, None
        if rung is not None:
            rung.set_result(None)

    def next(self) -> Future[None]:
        """What is done when it rings next. Ask for it before you look at what may change."""
        with self._lock:
            if self._next is None:
                self._next = Future()
                self._next.set_running_or_notify_cancel()
            return self._next


def until(bell: Bell, holds: Callable[[], bool], deadline: float | None) -> Flow[bool]:
    """Wait until something holds, or the deadline on the monotonic clock; say whether it does."""
    while True:
        changed = bell.next()
        if holds():
            return True
        rest = None if deadline is None else deadline - time.monotonic()
        if rest is not None and rest <= 0:
            return False
        try:
            yield Wait(changed, rest)
        except TimeoutError:
            return holds()
