"""Defer interruptions such as Ctrl-C, which can occur between any two instructions.

An interruption right after a process has started would leave that process running without an owner
that ends it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP until the end of the block."""
    pending: list[int] = []
    with ExitStack() as stack:
        stack.callback(_deliver, pending)
        for number in _interrupting():
            previous = signal.signal(number, lambda received, _frame: pending.append(received))
            stack.callback(signal.signal, number, previous)
        yield


def _deliver(pending: list[int]) -> None:
    if pending:
        signal.raise_signal(pending[0])


def _interrupting() -> list[signal.Signals]:
    """Return the signals with a Python handler; Python runs those only on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _ENDING if callable(signal.getsignal(number))]
