"""The exchanges, queues and streams of the broker."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rabbitdelay.core.topology.objects import Binding
from rabbitdelay.testing.model import failures
from rabbitdelay.testing.model.arguments import QueueArguments, require_equivalent
from rabbitdelay.testing.model.clock import Clock
from rabbitdelay.testing.model.exchanges import ALTERNATE, Exchange, Exchanges
from rabbitdelay.testing.model.message import Message
from rabbitdelay.testing.model.queue import Queue
from rabbitdelay.testing.model.stream import Stream

AnyQueue = Queue | Stream


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing a message."""

    is_routed: bool
    is_taken: bool | None
    """Whether every queue that the message reached has taken it; None if one does not answer."""


class Vhost:
    """A virtual host."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.exchanges = Exchanges()
        self.queues: dict[str, AnyQueue] = {}
        self.silent: set[str] = set()
        """Names of queues whose leaders do not answer, as on a node that hangs."""

    # Exchanges

    def declare_exchange(self, name: str, type_: str, arguments: Mapping[str, Any]) -> None:
        """Create an exchange; raise if one exists that differs."""
        existing = self.exchanges.get(name)
        if existing is None:
            self.exchanges.add(Exchange(name, type_, dict(arguments)))
            return
        if existing.type != type_:
            raise failures.inequivalent(
                "type", "exchange", name, f"'{type_}'", f"'{existing.type}'"
            )
        received = {key: value for key, value in arguments.items() if key == ALTERNATE}
        require_equivalent("exchange", name, received, existing.arguments)

    def exchange(self, name: str) -> Exchange:
        """Return an exchange, or raise if it does not exist."""
        found = self.exchanges.get(name)
        if found is None:
            raise failures.not_found("exchange", name)
        return found

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange; a missing one is not an error."""
        self.exchanges.remove(name)

    # Queues

    def declare_queue(self, name: str, arguments: Mapping[str, Any]) -> AnyQueue:
        """Create a queue; raise if one exists that differs."""
        self._require_answer(name)
        existing = self.queues.get(name)
        if existing is not None:
            existing.arguments.require_equivalent(name, arguments)
            self._used(existing)
            return existing
        name = name or f"amq.gen-{secrets.token_urlsafe(16)}"
        parsed = QueueArguments.of(arguments)
        kind = Stream if parsed.type == "stream" else Queue
        made = kind(name, parsed, self.clock, self._republish, partial(self.delete_queue, name))
        self.queues[name] = made
        return made

    def queue(self, name: str) -> AnyQueue:
        """Return a queue, or raise if it does not exist."""
        self._require_answer(name)
        found = self.queues.get(name)
        if found is None:
            raise failures.not_found("queue", name)
        self._used(found)
        return found

    def delete_queue(self, name: str) -> int:
        """Delete a queue and cancel its consumers; return the number of its ready messages."""
        queue = self.queues.pop(name, None)
        if queue is None:
            return 0
        count = queue.count
        queue.close()
        self.exchanges.unbind(name, "queue")
        for consumer in tuple(queue.consumers):
            consumer.channel.cancelled(consumer)
        return count

    def _require_answer(self, name: str) -> None:
        if name in self.silent:
            raise failures.Unanswered(name)

    # Bindings

    def bind(self, binding: Binding) -> None:
        """Create a binding; raise if an end of it does not exist."""
        source = self.exchange(binding.source)
        self._require(binding.destination, binding.destination_type)
        source.bind(binding)

    def unbind(self, binding: Binding) -> None:
        """Remove a binding; a missing one is not an error."""
        source = self.exchange(binding.source)
        self._require(binding.destination, binding.destination_type)
        source.unbind(lambda one: one == binding)

    def _require(self, name: str, kind: Literal["queue", "exchange"]) -> None:
        if kind == "exchange":
            self.exchange(name)
        else:
            self.queue(name)

    # Messages

    def publish(self, message: Message) -> Published:
        """Route a message to queues; raise if its exchange does not exist."""
        if message.exchange:
            self.exchange(message.exchange)
        queues = self._destinations(message)
        return Published(bool(queues), self._enqueue(message, queues))

    def _destinations(self, message: Message) -> list[AnyQueue]:
        if not message.exchange:
            names = [message.routing_key]
        else:
            names = self.exchanges.route(message.exchange, message.routing_key)
        return [self.queues[name] for name in names if name in self.queues]

    def _republish(self, message: Message) -> bool:
        """Publish a dead-lettered message, but not in a cycle."""
        queues = self._destinations(message)
        deaths = message.deaths
        if deaths is not None:
            queues = [queue for queue in queues if not deaths.form_a_cycle(queue.name)]
        return bool(queues) and bool(self._enqueue(message, queues))

    def _enqueue(self, message: Message, queues: list[AnyQueue]) -> bool | None:
        """Put a message into queues; return whether all of them have taken it.

        A queue that does not answer forgets the message, as on RabbitMQ 3.10.
        """
        answering = [queue for queue in queues if queue.name not in self.silent]
        taken = [queue.enqueue(message) for queue in answering]
        return all(taken) if answering == queues else None

    @staticmethod
    def _used(queue: AnyQueue) -> None:
        if not queue.consumers:
            queue.lifetime.left()
