"""A pool of threads that run handlers, which replaces threads whose handler does not return.

This file owns two rules:

1. A thread cannot be killed. If its job's lease is lost, the thread is abandoned: another thread
   replaces it, and the abandoned one ends when its handler returns, if ever.
2. Waking a thread costs more than a short handler takes. While handlers are short, one thread runs
   all of them. If they are long, or if work has been waiting for a while (`nudge`), each thread
   that starts wakes the next one, and all start at once.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]
_WORK, _END = "work", "end"
LONG_SECONDS = 0.0005
"""Average duration in seconds from which handlers count as long."""
_WEIGHT = 0.1
_MAX_SECONDS = 10 * LONG_SECONDS
"""Maximum duration that one handler contributes, so that a few long ones have little effect."""


class Pool:
    """Up to `size` threads, started as needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._work: deque[Work] = deque()
        self._wakes: SimpleQueue[str] = SimpleQueue()
        self._idle = 0
        self._waking = 0
        """Number of threads that were woken or started and have not taken any work yet."""
        self._threads: set[threading.Thread] = set()
        self._lost: set[threading.Thread] = set()
        self._started = 0
        self._average_seconds = LONG_SECONDS

    @property
    def lost(self) -> int:
        """Number of threads still running a handler whose job's lease is lost."""
        with self._lock:
            return len(self._lost)

    def submit(self, work: Work) -> None:
        """Run the work as soon as a thread is free."""
        with self._lock:
            self._work.append(work)
            self._wake_if_worth_it()

    @property
    def has_backlog(self) -> bool:
        """Whether work is waiting; the caller then calls `nudge` after a while."""
        return bool(self._work)

    def nudge(self) -> None:
        """Treat the handlers as long because work has been waiting, and wake a thread."""
        with self._lock:
            if self._work:
                self._average_seconds = max(self._average_seconds, LONG_SECONDS)
                self._wake_if_worth_it()

    def abandon(self, thread: threading.Thread) -> None:
        """Abandon a thread, so that another one replaces it."""
        with self._lock:
            if thread in self._threads:
                self._threads.discard(thread)
                self._lost.add(thread)
            self._wake_if_worth_it()

    def close(self) -> None:
        """End every thread after its current work, and drop work that has not started."""
        with self._lock:
            self._work.clear()
            for _ in self._threads:
                self._wakes.put(_END)

    def _wake_if_worth_it(self) -> None:
        """Wake a thread for waiting work, unless one is already waking or handlers are short."""
        if not self._work or self._waking:
            return
        if self._idle >= len(self._threads) or self._average_seconds >= LONG_SECONDS:
            self._wake_one()

    def _wake_one(self) -> None:
        """Wake or start a thread. If all are busy, the first that finishes takes the work."""
        if self._idle > 0:
            self._idle -= 1
            self._waking += 1
            self._wakes.put(_WORK)
        elif len(self._threads) < self._size:
            self._waking += 1
            self._start_thread()

    def _start_thread(self) -> None:
        self._started += 1
        thread = threading.Thread(
            target=self._run, name=f"{self._name}-{self._started}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        thread = threading.current_thread()
        try:
            wake = _WORK
            while wake is _WORK:
                with self._lock:
                    self._waking -= 1
                if not self._run_waiting_work(thread):
                    return
                wake = self._wakes.get()
        finally:
            with self._lock:
                self._threads.discard(thread)
                self._lost.discard(thread)
                self._wake_if_worth_it()  # it may have been woken for waiting work

    def _run_waiting_work(self, thread: threading.Thread) -> bool:
        """Run work until there is none; return whether this thread still belongs to the pool."""
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
            took = min(time.perf_counter() - began, _MAX_SECONDS)
            self._average_seconds += (took - self._average_seconds) * _WEIGHT
