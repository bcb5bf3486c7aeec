"""Tracebacks: where a handler's error was raised, as text that is kept with a buried job."""

import traceback
from pathlib import Path
from types import TracebackType

from rabbitdelay.core.settle.failure import bounded_traceback
from rabbitdelay.errors import HandlerVerdict

_OUR_CODE = str(Path(__file__).parents[2])


def traceback_of(error: BaseException) -> str | None:
    """Return where an error was raised, without our own frames before the handler's.

    A verdict such as Retry is raised on purpose, so it has none.
    """
    if isinstance(error, HandlerVerdict):
        return None
    shown = _from_foreign_code(error.__traceback__)
    try:
        lines = traceback.format_exception(type(error), error, shown)
        return bounded_traceback("".join(lines))
    except Exception:  # noqa: BLE001 - an error's own __str__ may fail in any way
        return None


def _from_foreign_code(entry: TracebackType | None) -> TracebackType | None:
    """Skip our own frames at the beginning; keep all when there are no others."""
    first = entry
    while entry is not None and entry.tb_frame.f_code.co_filename.startswith(_OUR_CODE):
        entry = entry.tb_next
    return first if entry is None else entry
