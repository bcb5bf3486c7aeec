"""Durations: reading `30`, `0.25`, `1h30m` or a timedelta as whole milliseconds, and writing them.

A fraction of a millisecond is always rounded up, because a job must never be early.
"""

import math
import re
from datetime import timedelta

from rabbitdelay.errors import InvalidJob

MILLISECONDS_PER_UNIT = {
    "y": 365 * 86_400_000,
    "mo": 30 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(mo|ms|[ywdhms])")
_MAX_TEXT = 100
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def milliseconds(value: float | timedelta, *, what: str) -> int:
    """Return seconds or a timedelta as whole milliseconds; errors call the value `what`."""
    if type(value) is int:
        return value * 1000
    if isinstance(value, timedelta):
        return -(value // timedelta(milliseconds=-1))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidJob(
            f"{what} must be a number of seconds or a timedelta, not {type(value).__name__}"
        )
    if not math.isfinite(value * 1_000_000):
        raise InvalidJob(f"{what} must be a finite number of seconds, not {value}")
    # Through microseconds: 0.1 + 0.2 becomes 300 ms, not 300.00000000000004 ms rounded up to 301.
    return math.ceil(round(value * 1_000_000) / 1000)


def seconds(value: float | timedelta, *, what: str) -> float:
    """Return seconds or a timedelta as seconds; raise InvalidJob if negative."""
    result = milliseconds(value, what=what) / 1000
    if result < 0:
        raise InvalidJob(f"{what} must not be negative, got {result:g} s")
    return result


def parse(text: str, *, what: str) -> int:
    """Read `1h30m`, `250ms`, `1.5h` or a bare number of seconds as whole milliseconds."""
    if len(text) > _MAX_TEXT:
        raise InvalidJob(f"invalid {what}: it has more than {_MAX_TEXT} characters")
    compact = text.strip().replace(" ", "").lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", compact):
        return milliseconds(float(compact), what=what)
    if not _WHOLE.fullmatch(compact):
        raise InvalidJob(
            f"invalid {what} {text!r}: write seconds, or a number with a unit "
            "(y mo w d h m s ms), like 30m, 1h30m or 250ms"
        )
    total = sum(
        float(number) * MILLISECONDS_PER_UNIT[unit] for number, unit in _PART.findall(compact)
    )
    return math.ceil(round(total * 1000) / 1000)


def parse_delay(text: str, *, what: str) -> int:
    """Read a delay like `parse`, except that a negative one is in the past and means now."""
    compact = text.strip()
    if compact.startswith("-"):
        parse(compact.removeprefix("-"), what=what)
        return 0
    return parse(text, what=what)


def describe(duration_ms: int) -> str:
    """Format a duration: `1h30m`, `7d`, `250ms`."""
    if duration_ms == 0:
        return "0s"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, duration_ms = divmod(duration_ms, MILLISECONDS_PER_UNIT[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
