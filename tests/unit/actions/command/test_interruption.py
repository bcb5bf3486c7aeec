"""Interruptions wait for the end of a block, and are not lost."""

import signal
import threading
from collections.abc import Iterator

import pytest

from rabbitdelay.actions.command.interruption import deferred


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Where tests run in the background SIGINT is ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_an_interruption_comes_at_the_end() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), deferred():  # noqa: PT012 - what is done inside matters
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_inside_restores_the_handlers_too() -> None:
    with pytest.raises(ValueError, match="inside"), deferred():
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_so() -> None:
    """Whatever is started inside inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with deferred():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_is_never_interrupted() -> None:
    seen = []

    def look() -> None:
        with deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
