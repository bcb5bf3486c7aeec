"""The exchange and routing key that a message is published to, and the lane that it takes."""

from typing import NamedTuple


class PublishRoute(NamedTuple):
    """The exchange, routing key and lane of a message."""

    exchange: str
    key: str
    safe_at: float
    """Monotonic time at which the youngest queue on the route is stable."""
    lane: str
    """The queue or exchange that may refuse the message or not answer."""
    is_stream: bool = False
