"""The binary ladder of the peers: 28 levels, as in NServiceBus.RabbitMQ and later in Celery.

Level n holds messages for 2**n units. The routing key consists of 28 bits and the topic. Bit 1
routes to the level's queue, bit 0 to the next lower level. Like NServiceBus (and unlike Celery,
which always starts at the top), a publisher enters at the highest set bit. The queues have the
arguments of NServiceBus' quorum delays, with at-least-once dead-lettering.
"""

from dataclasses import dataclass

from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

LEVELS = 28
SECOND_MS = 1_000

_SAFE = {
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


@dataclass(frozen=True, slots=True)
class BinaryLadder:
    """A binary ladder with steps of `unit_ms`; the peers use seconds."""

    name: str = "binary"
    unit_ms: int = SECOND_MS

    def units(self, delay_ms: int) -> int:
        """Return the delay in units, rounded up."""
        return -(-delay_ms // self.unit_ms)

    def hops(self, delay_ms: int) -> int:
        """Return the number of hops of a delay."""
        return self.units(delay_ms).bit_count()

    def rounding_ms(self, delay_ms: int) -> int:
        """Return the milliseconds that rounding adds to a delay."""
        return self.units(delay_ms) * self.unit_ms - delay_ms

    def entrance(self, delay_ms: int) -> str:
        """Return the exchange to which a publisher sends a delay."""
        return self._exchange(self.units(delay_ms).bit_length() - 1)

    def routing_key(self, delay_ms: int, topic: str) -> str:
        """Return the routing key: 28 bits, then the topic."""
        return ".".join(f"{self.units(delay_ms):0{LEVELS}b}") + f".{topic}"

    def ready_queue(self, topic: str) -> str:
        """Return the ready queue of a topic."""
        return f"{self.name}.ready.{topic}"

    def declare(self, channel: BlockingChannel, topic: str) -> None:
        """Declare the ladder, from the bottom up."""
        channel.exchange_declare(self._exchange(-1), ExchangeType.topic, durable=True)
        for level in range(LEVELS):
            self._declare_level(channel, level)
        ready = self.ready_queue(topic)
        channel.queue_declare(ready, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(ready, self._exchange(-1), f"#.{topic}")

    def _declare_level(self, channel: BlockingChannel, level: int) -> None:
        queue, lower = f"{self.name}.level.{level:02}", self._exchange(level - 1)
        arguments = {"x-message-ttl": (1 << level) * self.unit_ms, "x-dead-letter-exchange": lower}
        higher_bits = "*." * (LEVELS - 1 - level)
        channel.exchange_declare(self._exchange(level), ExchangeType.topic, durable=True)
        channel.queue_declare(queue, durable=True, arguments={**_SAFE, **arguments})
        channel.queue_bind(queue, self._exchange(level), f"{higher_bits}1.#")
        channel.exchange_bind(lower, self._exchange(level), f"{higher_bits}0.#")

    def _exchange(self, level: int) -> str:
        return f"{self.name}.level.{level:02}" if level >= 0 else f"{self.name}.delivery"
