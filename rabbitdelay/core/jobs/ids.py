"""Generated ids: they carry the due time, sort by it, and are safe in a URL.

`rd`, twelve hex digits of the due time in milliseconds, sixteen random ones: thirty characters.
The prefix and length tell them from ids that users choose: a delete may trust the time in one.
"""

import re

RANDOM_HEX_DIGITS = 16
_GENERATED = re.compile(r"rd([0-9a-f]{12})[0-9a-f]{16}")


def generate(due_ms: int, random_hex: str) -> str:
    """Return an id for a job that is due then."""
    return f"rd{due_ms:012x}{random_hex}"


def due_ms(id: str) -> int | None:
    """Return the due time that a generated id carries, or None for an id that a user chose."""
    match = _GENERATED.fullmatch(id)
    return int(match[1], 16) if match else None
