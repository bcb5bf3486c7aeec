"""Signal handling: treat every stop signal like Ctrl-C, and protect cleanup from interruption."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def interrupting() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP too, inside the block."""
    with _handled_by(_interrupt):
        yield


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP inside the block."""
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
