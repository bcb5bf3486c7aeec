"""Turn the broker's reply codes and texts into errors of this package, each with advice.

The texts are the broker's own. They name the queue, the exchange or the vhost, never a password.
"""

import re
from collections.abc import Sequence

from rabbitdelay import errors

ACCESS_REFUSED = 403
NOT_FOUND = 404
PRECONDITION_FAILED = 406
NOT_ALLOWED = 530

LOGIN_REFUSED = "the login was refused: check the user and the password"
"""This does not contain the reason, because only the broker's log does. The text of the broker's
reply is constant, and pika drops it."""
CANNOT_CONNECT = "check that the broker is running and that the address is correct"
NOT_IN_TIME = f"cannot connect in time: {CANNOT_CONNECT}"
START_ADVICE = "; `rabbitdelay broker start` starts a private one"
"""Follows `CANNOT_CONNECT` for the address that clients use when none is configured."""
NOT_AMQP = "the server does not speak AMQP 0-9-1: check the port, and the scheme (amqp or amqps)"
NO_HANDSHAKE = (
    "the connection was closed before the AMQP handshake: either the broker is still starting "
    f"behind a proxy such as Docker's, or {NOT_AMQP}"
)
VHOST_ADVICE = "create the vhost, or give this user permissions in it (rabbitmqctl set_permissions)"
_CONNECTION: dict[int, tuple[type[errors.ConnectionFailed], str]] = {
    NOT_ALLOWED: (errors.VhostRefused, VHOST_ADVICE),
}
_CHANNEL: dict[int, tuple[type[errors.TopologyError], str]] = {
    ACCESS_REFUSED: (
        errors.PermissionRefused,
        "docs/operations.md lists the permissions that each kind of user needs",
    ),
    NOT_FOUND: (
        errors.TopologyMissing,
        "create it with `rabbitdelay topology apply`, or use a client with declare=True",
    ),
    PRECONDITION_FAILED: (
        errors.TopologyConflict,
        "the namespace was created with another queue type: use that type, or another namespace",
    ),
}
_REFUSED_EXCHANGE = re.compile(r"access to exchange '([^']*)' in vhost")
_MISSING_EXCHANGE = re.compile(r"no exchange '([^']*)' in vhost")
_DEFAULT_EXCHANGE = "amq.default"
_KEPT = re.compile(r"'x-max-age' .* but current is '(\d+)([YMDhms]?)'")
# RabbitMQ 4.3 reports milliseconds without a unit, regardless of the declared unit.
_UNIT_SECONDS: dict[str, float] = {
    "Y": 31_536_000,
    "M": 2_592_000,
    "D": 86_400,
    "h": 3_600,
    "m": 60,
    "s": 1,
    "": 0.001,
}

_UNAVAILABLE = (
    "the queue exists, but no running node has a replica of it; it comes back when its node does: "
    "start that node, or wait until it has started"
)
_NOT_HERE = "replica on the local node"
"""A stream can only be read on a node that has a replica.

RabbitMQ 3.10 says "does not have a replica" where there is none and "does not have a running
replica" where it is down. 4.3 says the latter in both cases.
"""
_ELSEWHERE = (
    "the stream exists, but this node has no running replica of it: wait until the replica has "
    "started, connect to another node, or add a replica with `rabbitmq-streams add_replica`"
)
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "wrong version number",
    "UNEXPECTED_EOF",
    "record layer failure",
)
_PASSING = ("is down or inaccessible", "does not have a running replica")
MOST_SHOWN = 3
"""Maximum number of missing queues and exchanges that an error names."""
_OVERSIZE = re.compile(r"message size \d+ is larger than (?:configured )?max size (\d+)")


def connection_error(code: int, text: str, address: str) -> errors.ConnectionFailed:
    """Return the error for a connection that the broker closed or did not open."""
    if code == ACCESS_REFUSED:
        return errors.LoginRefused(f"{address}: {LOGIN_REFUSED}")
    kind, advice = _CONNECTION.get(code, (errors.ConnectionFailed, "see the broker's log"))
    return kind(f"{address}: the broker says {code} {text}: {advice}")


def channel_error(code: int, text: str) -> errors.TopologyError:
    """Return the error for a channel that the broker closed."""
    kind, advice = _CHANNEL.get(code, (errors.TopologyError, "see the broker's log"))
    if _NOT_HERE in text:
        kind, advice = errors.QueueUnavailable, _ELSEWHERE
    elif is_passing(text):
        kind, advice = errors.QueueUnavailable, _UNAVAILABLE
    return kind(f"the broker says {code} {text}: {advice}")


def may_not_declare(
    error: errors.PermissionRefused, missing: Sequence[str], command: str
) -> errors.PermissionRefused:
    """Return the error for a user without permission to declare the queues that are missing."""
    refused = str(error).removesuffix(f": {_CHANNEL[ACCESS_REFUSED][1]}")
    return errors.PermissionRefused(
        f"{_shortened(missing)} missing, and this user may not declare ({refused}): run "
        f"`{command}` as a user with permission to declare, or grant configure to this user"
    )


def _shortened(names: Sequence[str]) -> str:
    """Return the first names as the subject of a sentence, with the number of further names."""
    shown, more = ", ".join(names[:MOST_SHOWN]), len(names) - MOST_SHOWN
    verb = "is" if len(names) == 1 else "are"
    return f"{shown} and {more} more {verb}" if more > 0 else f"{shown} {verb}"


def tls_advice(error: object) -> str:
    """Return advice on a failed TLS handshake; empty if its cause is unknown."""
    if any(words in str(error) for words in _NOT_TLS):
        return "; this port does not speak TLS: use amqp://, or the broker's TLS port, often 5671"
    return ""


def is_passing(text: str) -> bool:
    """Whether a reply says that a queue exists but is down for now, as after a restart."""
    return any(words in text for words in _PASSING)


def largest_body_bytes(text: str) -> int | None:
    """Return the broker's size limit if a reply says that a message exceeded it."""
    match = _OVERSIZE.search(text)
    return int(match[1]) if match else None


def refused_exchange(text: str) -> str | None:
    """Return the exchange that a reply says this user may not publish to."""
    match = _REFUSED_EXCHANGE.search(text)
    if match is None:
        return None
    return "" if match[1] == _DEFAULT_EXCHANGE else match[1]


def missing_exchange(text: str) -> str | None:
    """Return the exchange that a reply says does not exist."""
    match = _MISSING_EXCHANGE.search(text)
    return match[1] if match else None


def retention_seconds(text: str) -> float | None:
    """Return a stream's actual retention if a reply says that it differs from the declared one."""
    match = _KEPT.search(text)
    return int(match[1]) * _UNIT_SECONDS[match[2]] if match else None
