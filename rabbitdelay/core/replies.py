"""Replies: the broker's reply codes, as our errors, in one table.

The texts are the broker's own; they name the queue, exchange or vhost, and never a password.
"""

import re

from rabbitdelay import errors

ACCESS_REFUSED = 403
NOT_FOUND = 404
PRECONDITION_FAILED = 406
NOT_ALLOWED = 530

_CONNECTION: dict[int, tuple[type[errors.ConnectionFailed], str]] = {
    ACCESS_REFUSED: (errors.LoginRefused, "check the user and the password"),
    NOT_ALLOWED: (
        errors.VhostRefused,
        "create the vhost, or give this user permissions in it (rabbitmqctl set_permissions)",
    ),
}
_CHANNEL: dict[int, tuple[type[errors.TopologyError], str]] = {
    ACCESS_REFUSED: (
        errors.PermissionRefused,
        "grant configure, write and read on the namespace's names, or use declare=False",
    ),
    NOT_FOUND: (
        errors.TopologyMissing,
        "make it with `rabbitdelay topology apply`, or use a client with declare=True",
    ),
    PRECONDITION_FAILED: (
        errors.TopologyConflict,
        "the namespace was made with another queue type: use that one, or another namespace",
    ),
}
_REFUSED_EXCHANGE = re.compile(r"access to exchange '([^']*)' in vhost")
_DEFAULT_EXCHANGE = "amq.default"
_OVERSIZE = re.compile(r"message size \d+ is larger than (?:configured )?max size (\d+)")


def connection_error(code: int, text: str, address: str) -> errors.ConnectionFailed:
    """Return our error for a connection that the broker closed or did not open."""
    kind, advice = _CONNECTION.get(code, (errors.ConnectionFailed, "see the broker's log"))
    return kind(f"{address}: the broker says {code} {text}: {advice}")


def channel_error(code: int, text: str) -> errors.TopologyError:
    """Return our error for a channel that the broker closed."""
    kind, advice = _CHANNEL.get(code, (errors.TopologyError, "see the broker's log"))
    return kind(f"the broker says {code} {text}: {advice}")


def largest_body_bytes(text: str) -> int | None:
    """Return the broker's limit, when a reply says that a message was larger than it."""
    match = _OVERSIZE.search(text)
    return int(match[1]) if match else None


def refused_exchange(text: str) -> str | None:
    """Return the exchange that a reply says may not be published to."""
    match = _REFUSED_EXCHANGE.search(text)
    if match is None:
        return None
    return "" if match[1] == _DEFAULT_EXCHANGE else match[1]
