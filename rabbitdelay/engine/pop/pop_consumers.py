"""The consumers of a channel that serves a pop, one per topic."""

from collections.abc import Callable, Sequence

from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.transport import Channel, Then


class PopConsumers:
    """Starts and cancels the consumers of one channel, on the transport's thread."""

    def __init__(self, channel: Channel, topology: Topology, started: Then) -> None:
        self._channel = channel
        self._topology = topology
        self._started = started
        """Called when the broker has started a consumer."""
        self._topics: dict[str, str] = {}
        """The topics that are being consumed, by consumer tag."""
        self._prefetch = 0
        self.are_ending = False
        """Whether they are being cancelled."""

    def __len__(self) -> int:
        return len(self._topics)

    def start(self, topics: Sequence[str], most: int) -> None:
        """Consume topics, with about as many unacked jobs as are wanted in total."""
        if not self._channel.is_open:
            return  # the connection is about to be lost, which is handled elsewhere
        share = max(1, most // len(topics))
        if self._prefetch != share:
            self._prefetch = share
            self._channel.qos(share)
        for topic in topics:
            tag = self._channel.consume(self._topology.ready_queue(topic), {}, self._started)
            self._topics[tag] = topic

    def topic(self, tag: str) -> str | None:
        """Return the topic of a consumer."""
        return self._topics.get(tag)

    def forget(self, tag: str) -> bool:
        """Forget a consumer that the broker has cancelled; return whether it was one of these."""
        return self._topics.pop(tag, None) is not None

    def cancel(self, then: Then) -> None:
        """Cancel one consumer at a time, because pika calls all callbacks at the first reply."""
        self.are_ending = True
        tag = next(iter(self._topics), None)
        if tag is None:
            self.are_ending = False
            then()
        elif self._channel.is_open:  # if not, the connection is about to be lost
            self._channel.cancel(tag, lambda: self._cancelled(tag, then))

    def _cancelled(self, tag: str, then: Callable[[], None]) -> None:
        self._topics.pop(tag, None)
        self.cancel(then)
