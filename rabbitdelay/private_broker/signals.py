"""Signals: every way of being told to stop ends like Ctrl-C, and cleaning up is not interrupted."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def interrupting() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal raise KeyboardInterrupt too."""
    with _handled_by(_interrupt):
        yield


@contextmanager
def ignored() -> Iterator[None]:
    """Inside, nobody interrupts."""
    with _handled_by(signal.SIG_IGN):
        yield


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
