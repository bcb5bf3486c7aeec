"""Lifetime: what happens to threads and children when the process forks or ends.

The only state of this package that belongs to the process and not to a client: fork and exit
happen to the process.
"""

import atexit
import os
import threading
import weakref
from typing import Protocol

EXIT_FLUSH_SECONDS = 5.0
CLOSE_SECONDS = 5.0
"""How long closing may take beyond the flush."""
UNANSWERED_SECONDS = 0.2
"""How long closing may take where the broker answers nothing, as it does during an alarm."""


class Open(Protocol):
    """What is open and wants to be told."""

    def flush_at_exit(self, seconds: float) -> None:
        """Flush and close."""

    def abandon_in_child(self) -> None:
        """Forget everything: this is a forked child, and the parent goes on with it."""


_open: weakref.WeakSet[Open] = weakref.WeakSet()
_lock = threading.Lock()


def opened(one: Open) -> None:
    """Remember what is open."""
    with _lock:
        _open.add(one)


def closed(one: Open) -> None:
    """Forget what was closed."""
    with _lock:
        _open.discard(one)


def _flush_at_exit() -> None:
    for one in list(_open):
        one.flush_at_exit(EXIT_FLUSH_SECONDS)


def _abandon_in_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may hold it for ever
    _lock = threading.Lock()
    for one in list(_open):
        one.abandon_in_child()
    _open.clear()


atexit.register(_flush_at_exit)
os.register_at_fork(after_in_child=_abandon_in_child)
