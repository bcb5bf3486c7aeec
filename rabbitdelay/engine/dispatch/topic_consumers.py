"""The topics of a worker: one subscription each, paused and resumed with its topic."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import Subscription


class TopicListener(Protocol):
    """Handles the events of all topics; the dispatcher implements it."""

    def delivered(self, handler: Handler, delivery: Delivery) -> None:
        """Handle a message of a topic."""

    def heard(self) -> None:
        """Handle the start of a consumer."""

    def topic_interrupted(self, topic: str, lost: Sequence[Lease]) -> None:
        """Handle the deletion of a topic's queue, which is declared again."""

    def fail(self, error: Exception) -> None:
        """Handle an error of a topic that never worked."""


class TopicConsumers:
    """Consumes the topics of a worker, on the transport's thread."""

    def __init__(
        self,
        consumer: Consumer,
        handlers: Mapping[str, Handler],
        prefetch: Callable[[str], int],
        is_paused: Callable[[str], bool],
        listener: TopicListener,
    ) -> None:
        self._is_paused = is_paused
        self._topics = {
            topic: _Topic(consumer, handler, prefetch(topic), listener)
            for topic, handler in handlers.items()
        }
        self.takes_more = True
        """Whether more jobs are taken; False after `take_no_more`."""

    def consume(self) -> None:
        """Consume the topics that are not paused."""
        if self.takes_more:
            for topic in self._topics.values():
                if not self._is_paused(topic.name):
                    topic.subscription.go_on()

    def pause(self) -> list[str]:
        """Stop consuming the topics that are paused, and return them."""
        paused = self.paused()
        for topic in paused:
            self._topics[topic].subscription.end()
        return paused

    def take_no_more(self) -> None:
        """Stop consuming all topics."""
        self.takes_more = False
        for topic in self._topics.values():
            topic.subscription.end()

    def take_more(self) -> None:
        """Consume again after `take_no_more`."""
        self.takes_more = True

    def paused(self) -> list[str]:
        """Return the paused topics."""
        return [topic for topic in self._topics if self._is_paused(topic)]

    def active(self) -> list[Subscription]:
        """Return the subscriptions of the topics that are not paused."""
        return [
            topic.subscription for topic in self._topics.values() if not self._is_paused(topic.name)
        ]

    def connection_lost(self) -> list[str]:
        """Forget the channels; return all topics."""
        for topic in self._topics.values():
            topic.subscription.connection_lost()
        return list(self._topics)

    def channel_lost(self, number: int, error: Exception) -> list[str]:
        """Handle a channel closed by the broker; return the topic that it belonged to, if any."""
        return [
            topic.name
            for topic in self._topics.values()
            if topic.subscription.channel_lost(number, error)
        ]


class _Topic:
    """One topic of a worker, and its subscription."""

    def __init__(
        self, consumer: Consumer, handler: Handler, prefetch: int, listener: TopicListener
    ) -> None:
        self.name = handler.topic
        self._handler = handler
        self._listener = listener
        topology = consumer.topology
        parts = [*topology.topic(self.name)]
        if handler.keep_responses:
            parts.append(topology.responses(self.name))
        queue = topology.ready_queue(self.name)
        self.subscription = Subscription(consumer, queue, parts, prefetch, self)

    def delivered(self, delivery: Delivery) -> None:
        """Prefetch a job."""
        self._listener.delivered(self._handler, delivery)

    def consuming(self) -> None:
        """Note the start of the consumer."""
        self._listener.heard()

    def interrupted(self, lost: Sequence[Lease]) -> None:
        """Handle the deletion of the queue, which is declared again."""
        self._listener.topic_interrupted(self.name, lost)

    def failed(self, error: Exception) -> None:
        """Fail the worker, because the topic never worked: the cause has to be fixed."""
        self._listener.fail(error)
