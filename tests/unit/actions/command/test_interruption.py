"""Interruptions are deferred to the end of a block and not lost."""

import signal
import threading
from collections.abc import Iterator

import pytest

from rabbitdelay.actions.command.interruption import deferred_signals


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Handle SIGINT, which is ignored when tests run in the background."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_an_interruption_is_delivered_at_the_end() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), deferred_signals():  # noqa: PT012 - the body of the block matters
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_inside_restores_the_handlers_too() -> None:
    with pytest.raises(ValueError, match="inside"), deferred_signals():
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored() -> None:
    """Processes started inside the block inherit the ignored signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with deferred_signals():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_leaves_the_handlers_alone() -> None:
    seen = []

    def look() -> None:
        with deferred_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
