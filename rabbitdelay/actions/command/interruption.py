"""Interruptions: Ctrl-C comes between any two instructions, also when a process has just started.

What it leaves behind then nobody knows of, and nobody ends.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, an interruption waits: it comes when the block is left."""
    waiting: list[int] = []
    with ExitStack() as stack:
        stack.callback(_deliver, waiting)
        for number in _interrupting():
            previous = signal.signal(number, lambda received, _frame: waiting.append(received))
            stack.callback(signal.signal, number, previous)
        yield


def _deliver(waiting: list[int]) -> None:
    if waiting:
        signal.raise_signal(waiting[0])


def _interrupting() -> list[signal.Signals]:
    """The signals that a function of Python's handles; it does so on the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _ENDING if callable(signal.getsignal(number))]
