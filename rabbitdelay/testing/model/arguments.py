"""The arguments of a queue, and whether two declarations are equivalent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from rabbitdelay.testing.model import failures

DEFAULT_DELIVERY_LIMIT = 20
"""Of a quorum queue, since RabbitMQ 4.0."""
MAX_AGE = "x-max-age"
_UNIT_SECONDS = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """The arguments of a queue that have an effect here."""

    type: str
    all: Mapping[str, Any] = field(default_factory=dict)
    ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    is_at_least_once: bool = False
    rejects_when_full: bool = False
    max_length: int | None = None
    delivery_limit: int | None = None
    has_single_active_consumer: bool = False
    max_age_seconds: int | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the arguments of a declaration."""
        type_ = arguments.get("x-queue-type", "classic")
        limit = arguments.get("x-delivery-limit", DEFAULT_DELIVERY_LIMIT)
        return cls(
            type_,
            dict(arguments),
            ttl_ms=arguments.get("x-message-ttl"),
            expires_ms=arguments.get("x-expires"),
            dead_letter_exchange=arguments.get("x-dead-letter-exchange"),
            dead_letter_key=arguments.get("x-dead-letter-routing-key"),
            is_at_least_once=arguments.get("x-dead-letter-strategy") == "at-least-once",
            rejects_when_full=arguments.get("x-overflow") == "reject-publish",
            max_length=arguments.get("x-max-length"),
            delivery_limit=limit if type_ == "quorum" else None,
            has_single_active_consumer=bool(arguments.get("x-single-active-consumer")),
            max_age_seconds=_seconds(arguments.get(MAX_AGE)),
        )

    def require_equivalent(self, name: str, received: Mapping[str, Any]) -> None:
        """Raise the broker's error if a declaration has other arguments."""
        require_equivalent("queue", name, received, {"x-queue-type": self.type, **self.all})


def require_equivalent(
    kind: str, name: str, received: Mapping[str, Any], current: Mapping[str, Any]
) -> None:
    """Raise the broker's error for the first argument that differs."""
    for argument in sorted({*received, *current}):
        new, old = received.get(argument), current.get(argument)
        if argument == "x-queue-type":
            new = new or "classic"
        if new != old:
            texts = _texts(argument, new, old)
            raise failures.inequivalent(argument, kind, name, *texts)


def _texts(argument: str, received: object, current: object) -> tuple[str, str]:
    """Return two values as rabbit_misc:assert_args_equivalence words them.

    A retention is reported in milliseconds without a unit, as RabbitMQ 4.3 does.
    """
    if received is None or current is None:
        return _described(received), _described(current)
    if argument == MAX_AGE:
        ages = [(_seconds(str(one)) or 0) * 1000 for one in (received, current)]
        return f"'{ages[0]}'", f"'{ages[1]}'"
    return f"'{received}'", f"'{current}'"


def _described(value: object) -> str:
    if value is None:
        return "none"
    return f"the value '{value}' of type '{'longstr' if isinstance(value, str) else 'signedint'}'"


def _seconds(age: str | None) -> int | None:
    return None if age is None else int(age[:-1]) * _UNIT_SECONDS[age[-1]]
