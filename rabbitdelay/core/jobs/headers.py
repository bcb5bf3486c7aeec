"""Additional headers of a job: checking those given to put, and finding them in a message.

They travel in the message's headers together with ours, so names used by rabbitdelay or the broker
are refused. `CC` and `BCC`, for example, would make the broker route a copy of the job elsewhere.
"""

from collections.abc import Mapping
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any

from rabbitdelay.core.amqp import field_table
from rabbitdelay.errors import InvalidJob

MAX_BYTES = 32 * 1024
"""Maximum encoded size of all headers together, which leaves room for those of the broker."""
MAX_NAME_BYTES = 128
_RESERVED_PREFIXES = ("rd-", "x-")
_RESERVED = ("CC", "BCC")
_TYPES = "str, int of 64 bits, float, bool, None, bytes, or a list or dict of them"


def check(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job's additional headers; raise InvalidJob if they cannot be sent."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidJob(f"headers must be a mapping, not {type(given).__name__}")
    headers = dict(given)
    size = sum(_check_one(name, value) for name, value in headers.items())
    if size > MAX_BYTES:
        raise InvalidJob(
            f"headers must take at most {MAX_BYTES:,} bytes, got {size:,}: move data to the body"
        )
    return headers


def is_reserved(name: str) -> bool:
    """Whether a name belongs to rabbitdelay or the broker."""
    return name.startswith(_RESERVED_PREFIXES) or name in _RESERVED


def own_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message's additional headers, as given to put."""
    return {name: value for name, value in headers.items() if not is_reserved(name)}


def _check_one(name: object, value: object) -> int:
    """Return the encoded size of a header in bytes; raise InvalidJob if it cannot be sent."""
    if not isinstance(name, str) or not name:
        raise InvalidJob(f"a header name must be a non-empty str, not {name!r}")
    if is_reserved(name):
        raise InvalidJob(
            f"header {name!r} is reserved: names that begin with 'rd-' belong to rabbitdelay, "
            "those that begin with 'x-', 'CC' and 'BCC' to the broker"
        )
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        raise InvalidJob(
            f"a header name must be at most {MAX_NAME_BYTES} bytes, not {name[:50]!r}…"
        )
    try:
        encoded = field_table.encode({name: value})
        field_table.decode(
            encoded, 0, len(encoded)
        )  # raises Undecodable for values nested too deep for a consumer
    except (TypeError, AttributeError, StructError, RecursionError):
        raise InvalidJob(f"the value of header {name!r} must be {_TYPES}") from None
    except ValueError as error:
        raise InvalidJob(f"header {name!r} cannot be sent: {error}") from None
    return len(encoded)
