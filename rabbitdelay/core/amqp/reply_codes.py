"""Replies: the broker's reply codes, as our errors, in one table.

The texts are the broker's own; they name the queue, exchange or vhost, and never a password.
"""

import re
from collections.abc import Sequence

from rabbitdelay import errors

ACCESS_REFUSED = 403
NOT_FOUND = 404
PRECONDITION_FAILED = 406
NOT_ALLOWED = 530

LOGIN_REFUSED = "the login was refused: check the user and the password"
"""Why, only the broker's log tells: its text is always the same, and pika keeps none of it."""
NOT_AMQP = "what answers there does not speak AMQP 0-9-1: check the port, and amqp or amqps"
NO_HANDSHAKE = (
    "the connection was closed before the AMQP handshake: either the broker is still starting "
    f"behind a proxy, such as Docker's, or {NOT_AMQP}"
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
        "make it with `rabbitdelay topology apply`, or use a client with declare=True",
    ),
    PRECONDITION_FAILED: (
        errors.TopologyConflict,
        "the namespace was made with another queue type: use that one, or another namespace",
    ),
}
_REFUSED_EXCHANGE = re.compile(r"access to exchange '([^']*)' in vhost")
_MISSING_EXCHANGE = re.compile(r"no exchange '([^']*)' in vhost")
_DEFAULT_EXCHANGE = "amq.default"
_KEPT = re.compile(r"'x-max-age' .* but current is '(\d+)([YMDhms]?)'")
# RabbitMQ 4.3 says it in milliseconds, whatever it was told.
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
    "the queue is there, but no node that runs has a replica of it; it comes back when its node "
    "does: start that node, or wait until it has started"
)
_NOT_HERE = "replica on the local node"
"""A stream is read only from the node of the connection. RabbitMQ 3.10 says "does not have a
replica" where there is none and "does not have a running replica" where it is down, 4.3 the latter
for both."""
_ELSEWHERE = (
    "the stream is there, but this node has no running replica of it: wait until that has started, "
    "connect to another node, or add a replica here with `rabbitmq-streams add_replica`"
)
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "wrong version number",
    "UNEXPECTED_EOF",
    "record layer failure",
)
_PASSING = ("is down or inaccessible", "does not have a running replica")
MOST_SHOWN = 3
"""How many missing queues and exchanges an error names."""
_OVERSIZE = re.compile(r"message size \d+ is larger than (?:configured )?max size (\d+)")


def connection_error(code: int, text: str, address: str) -> errors.ConnectionFailed:
    """Return our error for a connection that the broker closed or did not open."""
    if code == ACCESS_REFUSED:
        return errors.LoginRefused(f"{address}: {LOGIN_REFUSED}")
    kind, advice = _CONNECTION.get(code, (errors.ConnectionFailed, "see the broker's log"))
    return kind(f"{address}: the broker says {code} {text}: {advice}")


def channel_error(code: int, text: str) -> errors.TopologyError:
    """Return our error for a channel that the broker closed."""
    kind, advice = _CHANNEL.get(code, (errors.TopologyError, "see the broker's log"))
    if _NOT_HERE in text:
        kind, advice = errors.QueueUnavailable, _ELSEWHERE
    elif is_passing(text):
        kind, advice = errors.QueueUnavailable, _UNAVAILABLE
    return kind(f"the broker says {code} {text}: {advice}")


def may_not_declare(
    error: errors.PermissionRefused, missing: Sequence[str], command: str
) -> errors.PermissionRefused:
    """Return the error for a user who would make what is missing, and may not."""
    refused = str(error).removesuffix(f": {_CHANNEL[ACCESS_REFUSED][1]}")
    return errors.PermissionRefused(
        f"{_shortened(missing)} missing, and this user may not declare ({refused}): make what is "
        f"missing as a user who may, with `{command}`, or grant this user configure too"
    )


def _shortened(names: Sequence[str]) -> str:
    """Return the first names as the subject of a sentence, and how many more there are."""
    shown, more = ", ".join(names[:MOST_SHOWN]), len(names) - MOST_SHOWN
    verb = "is" if len(names) == 1 else "are"
    return f"{shown} and {more} more {verb}" if more > 0 else f"{shown} {verb}"


def tls_advice(error: object) -> str:
    """Return what to do about a TLS handshake that failed; empty when that is not known."""
    if any(words in str(error) for words in _NOT_TLS):
        return "; this port does not speak TLS: use amqp://, or the broker's TLS port, often 5671"
    return ""


def is_passing(text: str) -> bool:
    """Whether a reply tells of a queue that is there, and not up: after a restart, or a crash."""
    return any(words in text for words in _PASSING)


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


def missing_exchange(text: str) -> str | None:
    """Return the exchange that a reply says does not exist."""
    match = _MISSING_EXCHANGE.search(text)
    return match[1] if match else None


def retention_seconds(text: str) -> float | None:
    """Return how long a stream keeps what is in it, when a reply says that this is not as asked."""
    match = _KEPT.search(text)
    return int(match[1]) * _UNIT_SECONDS[match[2]] if match else None
