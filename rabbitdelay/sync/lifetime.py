"""Lifetime: what happens to open publishers when the process forks or ends.

The only state of this package that belongs to the process and not to a client: fork and exit
happen to the process.
"""

import atexit
import os
import threading
import weakref
from typing import Protocol

EXIT_FLUSH_SECONDS = 5.0


class Open(Protocol):
    """What is open and wants to be told."""

    def close(self, flush_seconds: float) -> None:
        """Flush and close."""

    def abandon(self) -> None:
        """Forget everything: this is a forked child, and the parent goes on with it."""


_open: weakref.WeakSet[Open] = weakref.WeakSet()
_lock = threading.Lock()


def opened(publisher: Open) -> None:
    """Remember an open publisher."""
    with _lock:
        _open.add(publisher)


def closed(publisher: Open) -> None:
    """Forget a publisher that was closed."""
    with _lock:
        _open.discard(publisher)


def _flush_at_exit() -> None:
    for publisher in list(_open):
        publisher.close(EXIT_FLUSH_SECONDS)


def _abandon_in_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may hold it for ever
    _lock = threading.Lock()
    for publisher in list(_open):
        publisher.abandon()
    _open.clear()


atexit.register(_flush_at_exit)
os.register_at_fork(after_in_child=_abandon_in_child)
