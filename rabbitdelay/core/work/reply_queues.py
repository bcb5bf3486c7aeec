"""Reply queues: the queues to which a consumer may publish responses.

The client that puts a job chooses its `reply_to`, but the consumer publishes the response, with its
own permissions. Without this check, any client could publish to any queue of the virtual host
through a consumer.

This file owns three rules:

1. The reply queues of the namespace's clients and its queues of kept responses are allowed.
2. Other queues are allowed by name or by pattern.
3. The namespace's other queues, such as the log of deletes, are never allowed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import InvalidConfiguration

_NOTHING = "(?!)"
"""A regular expression that matches nothing."""
_EXAMPLE = '["orders.replies", "myapp.*"]'


@dataclass(frozen=True, slots=True)
class ReplyQueues:
    """The allowed reply queues of one namespace."""

    namespace: str
    own: tuple[str, ...]
    """Prefixes of the namespace's queues of responses."""
    allowed: re.Pattern[str]
    """Matches the names of the allowed queues of other programs."""

    @classmethod
    def of(cls, topology: Topology, patterns: Sequence[str] = ()) -> Self:
        """Read names and patterns of queues, in which `*` stands for any characters.

        Raises:
            InvalidConfiguration: The value is not a list of names, or a name is in the namespace.
        """
        if isinstance(patterns, str):
            raise InvalidConfiguration(
                f"allow_reply_to must be a list of queue names such as {_EXAMPLE}, not {patterns!r}"
            )
        own = (topology.reply_queue(""), topology.responses_queue(""))
        checked = [_checked(pattern, topology.namespace) for pattern in patterns]
        expression = "|".join(map(_expression, checked)) or _NOTHING
        return cls(topology.namespace, own, re.compile(expression, re.DOTALL))

    def allows(self, queue: str) -> bool:
        """Whether responses may be published to a queue."""
        if not _is_utf8(queue):
            return False
        if queue.startswith(f"{self.namespace}."):
            return queue.startswith(self.own)
        return self.allowed.fullmatch(queue) is not None


def _checked(pattern: object, namespace: str) -> str:
    if not isinstance(pattern, str) or not pattern or not _is_utf8(pattern):
        raise InvalidConfiguration(
            f"allow_reply_to must be a list of queue names such as {_EXAMPLE}; "
            f"{pattern!r} is not a name"
        )
    if pattern.startswith(f"{namespace}."):
        raise InvalidConfiguration(
            f"allow_reply_to must not name {pattern!r}: names that begin with '{namespace}.' are "
            "reserved for the namespace, whose queues for responses are always allowed. Choose "
            "another name for the queue or the namespace"
        )
    return pattern


def _expression(pattern: str) -> str:
    """Return a regular expression for a pattern in which only `*` is special."""
    return ".*".join(map(re.escape, pattern.split("*")))


def _is_utf8(queue: str) -> bool:
    """Whether a name can be encoded.

    aiormq closes the connection if the broker returns any other.
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in queue)
