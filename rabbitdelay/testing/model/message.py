"""A message in the broker, and its state in a queue."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from rabbitdelay.core.amqp import encode
from rabbitdelay.testing.model import deaths
from rabbitdelay.testing.model.content import Content
from rabbitdelay.testing.model.deaths import Death, Deaths, Reason


@dataclass(frozen=True, slots=True)
class Message:
    """A published message. Each queue that it reaches keeps it in an entry of its own."""

    exchange: str
    routing_key: str
    content: Content
    deaths: Deaths | None = None

    @property
    def expiration_ms(self) -> int | None:
        """The TTL of the message itself, in milliseconds; None without one."""
        text = self.content.text(encode.EXPIRATION)
        return None if text is None else int(text)

    def delivered(self, extra: Mapping[str, Any]) -> Content:
        """Return the content that a consumer gets, with headers added by the broker."""
        added = {**(self.deaths.headers if self.deaths else {}), **extra}
        return self.content.with_headers(added) if added else self.content

    def dead(self, queue: str, reason: Reason, time_s: int, exchange: str, key: str | None) -> Self:
        """Return the message as it is published to a dead-letter exchange."""
        expiration = self.content.text(encode.EXPIRATION)
        death = Death(queue, reason, self.exchange, self.routing_key, time_s, expiration)
        return replace(
            self,
            exchange=exchange,
            routing_key=self.routing_key if key is None else key,
            content=self.content.without_expiration(),
            deaths=deaths.after(self.deaths, death),
        )


@dataclass(slots=True, eq=False)
class Entry:
    """A message in one queue."""

    message: Message
    position: int
    """Order of arrival in the queue; in a stream, the offset."""
    arrived_at: float
    """Time in seconds."""
    expires_at: float | None = None
    """Time in seconds; None without a TTL."""
    failures: int = 0
    """Number of deliveries that failed, which the delivery limit bounds."""
    returns: int = 0
    """Number of deliveries that were given back, for whatever reason."""
