"""Generated ids: they contain the due time, sort by it, and are safe in a URL.

An id is `rd`, twelve hex digits of the due time in milliseconds, and sixteen random hex digits:
thirty characters. The prefix and the length distinguish it from ids that users choose, so that a
delete can trust the time in a generated id.
"""

import re

RANDOM_HEX_DIGITS = 16
_GENERATED = re.compile(r"rd([0-9a-f]{12})[0-9a-f]{16}")


def generate(due_ms: int, random_hex: str) -> str:
    """Return an id for a job with this due time, in milliseconds since 1970."""
    return f"rd{due_ms:012x}{random_hex}"


def due_ms(id: str) -> int | None:
    """Return the due time in a generated id, or None for an id chosen by a user."""
    match = _GENERATED.fullmatch(id)
    return int(match[1], 16) if match else None
