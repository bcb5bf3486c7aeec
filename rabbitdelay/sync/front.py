"""The front: what a client takes from the broker, over one connection: jobs and responses."""

import secrets

from rabbitdelay.sync.consumer import Consumer
from rabbitdelay.sync.popping import Popper
from rabbitdelay.sync.replies import Replies
from rabbitdelay.sync.users import Users


class Front:
    """The consuming side of a client."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.popper = Popper(consumer)
        self.replies = Replies(consumer, secrets.token_hex(8))

    def start(self, connect_timeout: float) -> None:
        """Start, and wait for the first connection; raise what stands in its way."""
        self.consumer.start(Users(self.popper, self.replies), connect_timeout)
