"""A connection that its first caller opens, and that all callers share from then on."""

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.flow import Flow
from rabbitdelay.errors import ClientClosed


class Sharable(Protocol):
    """A publisher or a consuming side."""

    @property
    def has_ended(self) -> bool:
        """Whether its thread has died, or its event loop has ended."""

    def start(self) -> None:
        """Start to connect."""

    def connected(self, timeout: float) -> Flow[None]:
        """Wait for the first connection; raise the error that prevents it."""

    def close(self, flush_seconds: float) -> Flow[None]:
        """Wait for everything that is in flight, and close."""

    def close_soon(self, flush_seconds: float = process_lifetime.EXIT_FLUSH_SECONDS) -> None:
        """Close in the background."""


class _State(Enum):
    ABSENT = auto()
    OPENING = auto()
    """Callers wait for the first connection."""
    OPEN = auto()


One = TypeVar("One", bound=Sharable)


class SharedConnection(Generic[One]):
    """Opens a connection when it is needed, and again when it has ended. Thread-safe."""

    def __init__(self, connect_timeout: float, closed: threading.Event) -> None:
        self._connect_timeout = connect_timeout
        self._closed = closed
        """Set when the client is closed, before `take`."""
        self._lock = threading.Lock()
        self._state = _State.ABSENT
        self._one: One | None = None
        self._waiting: Counter[One] = Counter()
        """Number of callers waiting for the first connection of each."""

    @property
    def opened(self) -> One | None:
        """The connection; None if it is not open yet or has ended."""
        one = self._one
        if one is None or self._state is not _State.OPEN or one.has_ended:
            return None
        return one

    def get(self, new: Callable[[], One]) -> Flow[One]:
        """Open a new connection, or wait for the one that another caller is opening."""
        with self._lock:
            self._refuse_when_closed()
            one = self._one
            if one is None or (self._state is _State.OPEN and one.has_ended):
                one = self._start(new())
            self._waiting[one] += 1
        yield from self._until_connected(one)
        with self._lock:
            if self._one is one and self._state is _State.OPENING:
                self._state = _State.OPEN
                weakref.finalize(self, one.close_soon).atexit = False
        return one

    def take(self) -> One | None:
        """Return the connection to a caller that closes it, also if it is not open yet."""
        with self._lock:
            return self._forget()

    def _start(self, one: One) -> One:
        """Start to connect, and clean up if a signal handler raises meanwhile."""
        self._one, self._state = one, _State.OPENING
        try:
            one.start()
        except BaseException:
            self._forget()
            one.close_soon(0)
            raise
        return one

    def _until_connected(self, one: One) -> Flow[None]:
        """Wait for a first connection. If all callers that wait give up, the last one closes it."""
        try:
            yield from one.connected(self._connect_timeout)
            self._refuse_when_closed()
        except GeneratorExit:  # a signal handler raised in the caller, so waiting is impossible
            if self._gives_up_last(one):
                one.close_soon(0)
            raise
        except BaseException:
            if self._gives_up_last(one):
                yield from one.close(0)
            raise
        with self._lock:
            self._waiting.pop(one, None)

    def _gives_up_last(self, one: One) -> bool:
        with self._lock:
            self._waiting[one] -= 1
            if self._waiting[one] > 0:
                return False
            del self._waiting[one]
            if self._one is one and self._state is _State.OPENING:
                self._forget()
            return True

    def _forget(self) -> One | None:
        one, self._one, self._state = self._one, None, _State.ABSENT
        return one

    def _refuse_when_closed(self) -> None:
        if self._closed.is_set():
            raise ClientClosed("the client is closed")
