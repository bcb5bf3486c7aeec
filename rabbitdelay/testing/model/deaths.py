"""The record of how often, where and why a message was dead-lettered.

RabbitMQ 4 keeps it beside the headers and ignores what a publisher writes into `x-death`. Brokers
before 4.0 believe the publisher.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.amqp.field_table import Encoded, Timestamp

Reason = Literal["expired", "rejected", "maxlen", "delivery_limit"]


@dataclass(frozen=True, slots=True)
class Death:
    """The deaths of a message in one queue for one reason."""

    queue: str
    reason: Reason
    exchange: str
    routing_key: str
    time_s: int
    """Unix time of the first of them."""
    expiration: str | None = None
    """The TTL of the message itself, which is removed when it dies."""
    count: int = 1

    def as_table(self) -> dict[str, Any]:
        """Return the entry in the header `x-death`."""
        table: dict[str, Any] = {
            "count": self.count,
            "exchange": self.exchange,
            "queue": self.queue,
            "reason": self.reason,
            "routing-keys": [self.routing_key],
            "time": Timestamp(self.time_s),
        }
        if self.expiration is not None:
            table["original-expiration"] = self.expiration
        return table


@dataclass(frozen=True)
class Deaths:
    """All deaths of a message."""

    newest_first: tuple[Death, ...]
    first: Death

    def with_another(self, death: Death) -> "Deaths":
        """Return the deaths with a further one, counted with an earlier one of the same kind."""
        kind = (death.queue, death.reason)
        others = [one for one in self.newest_first if (one.queue, one.reason) != kind]
        for one in self.newest_first:
            if (one.queue, one.reason) == kind:
                death = replace(one, count=one.count + 1)
        return Deaths((death, *others), self.first)

    def form_a_cycle(self, queue: str) -> bool:
        """Whether the message has died in a queue before, and was not rejected since.

        RabbitMQ drops it then (rabbit_dead_letter:is_dead_letter_cycle).
        """
        for position, one in enumerate(self.newest_first):
            if one.queue == queue:
                return all(each.reason != "rejected" for each in self.newest_first[: position + 1])
        return False

    @cached_property
    def headers(self) -> Mapping[str, Encoded]:
        """The headers that tell a consumer about the deaths."""
        last = self.newest_first[0]
        values: dict[str, Any] = {"x-death": [one.as_table() for one in self.newest_first]}
        for order, death in (("first", self.first), ("last", last)):
            values[f"x-{order}-death-exchange"] = death.exchange
            values[f"x-{order}-death-queue"] = death.queue
            values[f"x-{order}-death-reason"] = death.reason
        data = field_table.encode(values)
        return field_table.split(data, 0, len(data))


def after(deaths: Deaths | None, death: Death) -> Deaths:
    """Return the deaths of a message that has died again, or for the first time."""
    return Deaths((death,), death) if deaths is None else deaths.with_another(death)
