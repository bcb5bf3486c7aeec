"""Counts, times and untrusted text as text."""

from datetime import UTC, datetime

from rabbitdelay import duration


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2,000 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def moment(milliseconds: int) -> str:
    """Return a time in ISO 8601, or in milliseconds if it is out of the calendar's range."""
    try:
        text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms since 1970"
    return text.replace("+00:00", "Z")


def relative(milliseconds: int, now_ms: int) -> str:
    """Return a time relative to now, in whole seconds: `in 20m`, `4m12s ago`."""
    seconds = abs(milliseconds - now_ms) // 1000
    text = duration.describe(seconds * 1000)
    return f"in {text}" if milliseconds > now_ms else f"{text} ago"


def printable(text: str) -> str:
    """Return untrusted text without characters that control the terminal."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)
