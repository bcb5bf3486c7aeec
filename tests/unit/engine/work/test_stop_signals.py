"""A worker handles the signals for which the program has no handler, on the main thread."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rabbitdelay import InvalidConfiguration
from rabbitdelay.engine.work import stop_signals
from rabbitdelay.engine.work.stop_signals import STOPPING


@contextmanager
def handlers(handler: Any) -> Iterator[None]:  # noqa: ANN401 - whatever signal accepts
    """Install a handler for both signals."""
    before = {number: signal.signal(number, handler) for number in STOPPING}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def own(*_: object) -> None:
    """Handle a signal in the program's way."""


def test_default_handlers_are_replaced() -> None:
    with handlers(signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert stop_signals.to_handle(handle_signals=None) == STOPPING


def test_handlers_of_the_program_are_kept_unless_they_are_to_be_replaced() -> None:
    with handlers(own):
        assert stop_signals.to_handle(handle_signals=None) == ()
        assert stop_signals.to_handle(handle_signals=True) == STOPPING


def test_no_signal_is_handled_on_request() -> None:
    with handlers(signal.SIG_DFL):
        assert stop_signals.to_handle(handle_signals=False) == ()


def test_another_thread_cannot_handle_signals() -> None:
    found = list[object]()

    def look() -> None:
        found.append(stop_signals.to_handle(handle_signals=None))
        with pytest.raises(InvalidConfiguration, match="main thread"):
            stop_signals.to_handle(handle_signals=True)
        found.append("refused")

    with handlers(signal.SIG_DFL):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == [(), "refused"]
