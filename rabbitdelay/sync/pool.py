"""The pool: threads that run handlers, and are replaced when a handler does not come back.

Two rules this file owns:

1. A thread cannot be killed. One whose job was taken from it is let go: another takes its place,
   and it ends when its handler does, if ever.
2. One thread is woken at a time, and wakes the next when there is more to do. A thread that waits
   for something lets the next begin at once; one that is through in no time does the rest itself.
   Waking a thread for each job costs more than a small job does: a worker is a third faster so.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]
_WORK, _END = "work", "end"


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

    @property
    def lost(self) -> int:
        """How many threads still run a handler whose job was taken from it."""
        with self._lock:
            return len(self._lost)

    def submit(self, work: Work) -> None:
        """Run it on a thread, as soon as one is free."""
        with self._lock:
            self._work.append(work)
            if self._waking == 0:
                self._wake_one()

    def let_go(self, thread: threading.Thread) -> None:
        """Count on this one no more."""
        with self._lock:
            if thread in self._threads:
                self._threads.discard(thread)
                self._lost.add(thread)
            if self._work and self._waking == 0:
                self._wake_one()

    def close(self) -> None:
        """Let every thread end after what it does now."""
        with self._lock:
            self._work.clear()
            for _ in self._threads:
                self._wakes.put(_END)

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
                if self._work and self._waking == 0:  # what this one was woken for
                    self._wake_one()

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
                if self._work and self._waking == 0:
                    self._wake_one()
            work()
