"""Headers that a putter gives a job: which may be given, and which of a message's they are.

They travel beside ours in the message's headers, so names that rabbitdelay or the broker use are
refused: `CC` and `BCC` would make the broker route a copy of the job elsewhere.
"""

from collections.abc import Mapping
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any

from rabbitdelay.core.amqp import field_table
from rabbitdelay.errors import InvalidJob

MAX_BYTES = 32 * 1024
"""Upper bound of all of them together, as they travel: the broker's own must fit in too."""
MAX_NAME_BYTES = 128
_RESERVED_PREFIXES = ("rd-", "x-")
_RESERVED = ("CC", "BCC")
_TYPES = "str, int of 64 bits, float, bool, None, bytes, or a list or dict of them"


def check(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job's headers, or say why they cannot be that."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidJob(f"headers must be a mapping, not {type(given).__name__}")
    headers = dict(given)
    size = sum(_check_one(name, value) for name, value in headers.items())
    if size > MAX_BYTES:
        raise InvalidJob(
            f"headers must take at most {MAX_BYTES:,} bytes, got {size:,}: put more in the body"
        )
    return headers


def is_reserved(name: str) -> bool:
    """Whether a name is rabbitdelay's or the broker's."""
    return name.startswith(_RESERVED_PREFIXES) or name in _RESERVED


def own_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a message's headers that its putter gave it."""
    return {name: value for name, value in headers.items() if not is_reserved(name)}


def _check_one(name: object, value: object) -> int:
    """Return how many bytes a header takes, or say why it cannot be one."""
    if not isinstance(name, str) or not name:
        raise InvalidJob(f"the name of a header must be a non-empty str, not {name!r}")
    if is_reserved(name):
        raise InvalidJob(
            f"header {name!r} is reserved: names that begin with 'rd-' belong to rabbitdelay, "
            "those that begin with 'x-', 'CC' and 'BCC' to the broker"
        )
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        raise InvalidJob(
            f"the name of a header must be at most {MAX_NAME_BYTES} bytes: {name[:50]!r}…"
        )
    try:
        encoded = field_table.encode({name: value})
        field_table.decode(
            encoded, 0, len(encoded)
        )  # refuses what is nested too deep for a consumer
    except (TypeError, AttributeError, StructError, RecursionError):
        raise InvalidJob(f"the value of header {name!r} must be {_TYPES}") from None
    except ValueError as error:
        raise InvalidJob(f"header {name!r} cannot be sent: {error}") from None
    return len(encoded)
