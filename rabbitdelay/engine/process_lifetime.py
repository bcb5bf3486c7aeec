"""Close or abandon clients when the process exits or forks.

The registry of open clients is the only state in this package that belongs to the process and not
to a client, because fork and exit happen to the process.
"""

import atexit
import os
import threading
import weakref
from typing import Protocol

EXIT_FLUSH_SECONDS = 5.0
CLOSE_SECONDS = 5.0
"""Time allowed for closing, in addition to the flush."""
UNANSWERED_SECONDS = 0.2
"""Time allowed for closing while the broker does not answer, as during an alarm."""


class Open(Protocol):
    """An object that is notified when the process exits or forks: a transport or an executor."""

    def flush_at_exit(self, seconds: float) -> None:
        """Flush and close."""

    def abandon_in_child(self) -> None:
        """Drop all state in a forked child, because the parent goes on using the connection."""


_open: weakref.WeakSet[Open] = weakref.WeakSet()
_lock = threading.Lock()


def opened(one: Open) -> None:
    """Register an object that was opened."""
    with _lock:
        _open.add(one)


def closed(one: Open) -> None:
    """Unregister an object that was closed."""
    with _lock:
        _open.discard(one)


def _flush_at_exit() -> None:
    for one in list(_open):
        one.flush_at_exit(EXIT_FLUSH_SECONDS)


def _abandon_in_child() -> None:
    global _lock  # noqa: PLW0603 - a thread of the parent may have held it
    _lock = threading.Lock()
    for one in list(_open):
        one.abandon_in_child()
    _open.clear()


atexit.register(_flush_at_exit)
os.register_at_fork(after_in_child=_abandon_in_child)
