"""The front: what a client takes from the broker, over one connection.

Jobs, responses, and the log of deletes, by which it knows which jobs it must not hand out.
"""

import secrets

from rabbitdelay.errors import CutOff
from rabbitdelay.sync.consumer import Consumer
from rabbitdelay.sync.following import Follower
from rabbitdelay.sync.popping import Popper
from rabbitdelay.sync.replies import Replies
from rabbitdelay.sync.users import Users


class Front:
    """The consuming side of a client."""

    def __init__(self, consumer: Consumer, follower: Follower) -> None:
        self.consumer = consumer
        self.follower = follower
        self.popper = Popper(consumer, follower)
        self.replies = Replies(consumer, secrets.token_hex(8))

    def start(self, connect_timeout: float) -> None:
        """Start, and wait for the first connection; raise what stands in its way."""
        self.consumer.start(Users(self.follower, self.popper, self.replies), connect_timeout)

    def wait_until_read(self, timeout: float) -> Follower:
        """Wait until the log of deletes was read to its end for the first time."""
        if not self.follower.caught_up.is_set():
            self.follower.begin()
        if not self.follower.caught_up.wait(timeout):
            raise CutOff(self.follower.state)
        return self.follower
