"""The pool: threads that run handlers, and are replaced when a handler does not come back.

Two rules this file owns:

1. A thread cannot be killed. One whose job was taken from it is let go: another takes its place,
   and it ends when its handler does, if ever.
2. Waking a thread costs more than a small handler takes. While handlers are
   small, one thread does what there is. When they are long, or something has waited for a moment
   (`nudge`), each thread that begins wakes the next, and all begin at once.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]
_WORK, _END = "work", "end"
LONG_SECONDS = 0.0005
"""Handlers that take longer than this, on average, are long."""
_WEIGHT = 0.1
_MOST_SECONDS = 10 * LONG_SECONDS
"""What one handler may count for, so that a few long ones are soon forgotten."""


class Pool:
    """Threads for so much work at once; they are made as they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._work: deque[Work] = deque()
        self._wakes: SimpleQueue[str] = SimpleQueue()
        self._idle = 0
        self._waking = 0
        """Threads that were woken or made, and have not taken anything yet."""
        self._threads: set[threading.Thread] = set()
        self._lost: set[threading.Thread] = set()
        self._made = 0
        self._average_seconds = LONG_SECONDS

    @property
    def lost(self) -> int:
        """How many threads still run a handler whose job was taken from it."""
        with self._lock:
            return len(self._lost)

    def submit(self, work: Work) -> None:
        """Run it on a thread, as soon as one is free."""
        with self._lock:
            self._work.append(work)
            self._wake_if_worth_it()

    @property
    def has_backlog(self) -> bool:
        """Whether something waits: then it is to be nudged in a moment."""
        return bool(self._work)

    def nudge(self) -> None:
        """What waits has waited for a moment: the handlers are not small after all."""
        with self._lock:
            if self._work:
                self._average_seconds = max(self._average_seconds, LONG_SECONDS)
                self._wake_if_worth_it()

    def let_go(self, thread: threading.Thread) -> None:
        """Count on this one no more."""
        with self._lock:
            if thread in self._threads:
                self._threads.discard(thread)
                self._lost.add(thread)
            self._wake_if_worth_it()

    def close(self) -> None:
        """Let every thread end after what it does now."""
        with self._lock:
            self._work.clear()
            for _ in self._threads:
                self._wakes.put(_END)

    def _wake_if_worth_it(self) -> None:
        """Wake a thread for what waits, unless one is on its way or will be through in no time."""
        if not self._work or self._waking:
            return
        if self._idle >= len(self._threads) or self._average_seconds >= LONG_SECONDS:
            self._wake_one()

    def _wake_one(self) -> None:
        """Wake a thread, or make one; when all are busy the first to be through goes on."""
        if self._idle > 0:
            self._idle -= 1
            self._waking += 1
            self._wakes.put(_WORK)
        elif len(self._threads) < self._size:
            self._waking += 1
            self._start_thread()

    def _start_thread(self) -> None:
        self._made += 1
        thread = threading.Thread(target=self._run, name=f"{self._name}-{self._made}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        thread = threading.current_thread()
        try:
            wake = _WORK
            while wake is _WORK:
                with self._lock:
                    self._waking -= 1
                if not self._do_what_there_is(thread):
                    return
                wake = self._wakes.get()
        finally:
            with self._lock:
                self._threads.discard(thread)
                self._lost.discard(thread)
                self._wake_if_worth_it()  # it may have been woken for what waits

    def _do_what_there_is(self, thread: threading.Thread) -> bool:
        """Work until there is nothing to do; say whether this thread is still counted on."""
        while True:
            with self._lock:
                if thread in self._lost:
                    return False
                if not self._work:
                    self._idle += 1
                    return True
                work = self._work.popleft()
                self._wake_if_worth_it()
            began = time.perf_counter()
            work()
            took = min(time.perf_counter() - began, _MOST_SECONDS)
            self._average_seconds += (took - self._average_seconds) * _WEIGHT
