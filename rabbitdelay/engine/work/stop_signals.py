"""Choose which of SIGTERM and SIGINT a worker handles while it runs."""

import signal
import threading
from functools import partial

from rabbitdelay.errors import InvalidConfiguration

STOPPING = (signal.SIGTERM, signal.SIGINT)


def to_handle(handle_signals: bool | None) -> tuple[signal.Signals, ...]:  # noqa: FBT001 - run's own
    """Return the signals that a worker handles.

    If `handle_signals` is None, these are the signals for which the program has not installed a
    handler, and only on the main thread, because other threads cannot install one.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if handle_signals and not on_main_thread:
        raise InvalidConfiguration(
            "handle_signals=True requires the main thread: omit it, and call stop() instead"
        )
    if handle_signals is False or not on_main_thread:
        return ()
    return tuple(number for number in STOPPING if handle_signals or _has_default_handler(number))


def _has_default_handler(number: signal.Signals) -> bool:
    handler = signal.getsignal(number)
    if number is signal.SIGINT and handler is signal.default_int_handler:
        return True
    return handler is signal.SIG_DFL or _is_of_asyncio_runner(handler)


def _is_of_asyncio_runner(handler: object) -> bool:
    """Whether `asyncio.run` installed the handler, which it does for SIGINT on its own."""
    function = getattr(handler, "func", None) if isinstance(handler, partial) else None
    return getattr(function, "__qualname__", None) == "Runner._on_sigint"
