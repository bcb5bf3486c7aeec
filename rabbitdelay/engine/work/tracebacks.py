"""Format the traceback of a handler's error, which is stored with a buried job."""

import traceback
from pathlib import Path
from types import TracebackType

from rabbitdelay.core.settle.failure import bounded_traceback
from rabbitdelay.errors import HandlerVerdict

_OUR_CODE = str(Path(__file__).parents[2])


def traceback_of(error: BaseException) -> str | None:
    """Return the traceback of an error, without rabbitdelay's frames above the handler's.

    A verdict such as Retry is raised on purpose and has none.
    """
    if isinstance(error, HandlerVerdict):
        return None
    shown = _from_foreign_code(error.__traceback__)
    try:
        lines = traceback.format_exception(type(error), error, shown)
        return bounded_traceback("".join(lines))
    except Exception:  # noqa: BLE001 - the error's own __str__ may raise anything
        return None


def _from_foreign_code(entry: TracebackType | None) -> TracebackType | None:
    """Skip rabbitdelay's frames at the beginning; keep all frames if there are no others."""
    first = entry
    while entry is not None and entry.tb_frame.f_code.co_filename.startswith(_OUR_CODE):
        entry = entry.tb_next
    return first if entry is None else entry
