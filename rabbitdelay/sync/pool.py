"""The pool: threads that run handlers, and are replaced when a handler does not come back.

A thread cannot be killed. One whose job was taken from it is let go: another takes its place, and
it ends when its handler does, if ever.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Pool:
    """Threads for as much work at once as it is given; they are made as they are needed."""

    def __init__(self, size: int, name: str, on_thread_end: Work = lambda: None) -> None:
        self._size = size
        self._name = name
        self._on_thread_end = on_thread_end
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._lost: set[threading.Thread] = set()
        self._made = 0

    @property
    def lost(self) -> int:
        """How many threads still run a handler whose job was taken from it."""
        with self._lock:
            return len(self._lost)

    def submit(self, work: Work) -> None:
        """Run it on a thread; whoever submits keeps to the size."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif len(self._threads) < self._size:
                self._start_thread()
        self._queue.put(work)

    def let_go(self, thread: threading.Thread) -> None:
        """Count on this one no more."""
        with self._lock:
            if thread in self._threads:
                self._threads.discard(thread)
                self._lost.add(thread)

    def close(self) -> None:
        """Let every thread end after what it does now."""
        with self._lock:
            for _ in self._threads:
                self._queue.put(None)

    def _start_thread(self) -> None:
        self._made += 1
        thread = threading.Thread(target=self._run, name=f"{self._name}-{self._made}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        thread = threading.current_thread()
        try:
            while (work := self._queue.get()) is not None:
                work()
                with self._lock:
                    if thread in self._lost:
                        return
                    self._idle += 1
        finally:
            with self._lock:
                self._threads.discard(thread)
                self._lost.discard(thread)
            self._on_thread_end()
