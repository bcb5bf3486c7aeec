"""The front: what a client takes from the broker, over one connection.

Jobs, responses, and the log of deletes, by which it knows which jobs it must not hand out.
"""

import secrets

from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.listener import Users
from rabbitdelay.engine.consume.reply_queue import Replies
from rabbitdelay.engine.deletes.reader import Follower
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.pop.popper import Popper
from rabbitdelay.errors import CutOff, NamespaceMissing


class Front:
    """The consuming side of a client."""

    def __init__(self, consumer: Consumer, follower: Follower) -> None:
        self.consumer = consumer
        self.follower = follower
        self.popper = Popper(consumer, follower)
        self.replies = Replies(consumer, secrets.token_hex(8))

    def start(self) -> None:
        """Begin to connect."""
        self.consumer.start(Users(self.follower, self.popper, self.replies))

    def until_read(self, timeout: float) -> Flow[Follower]:
        """Wait until the log of deletes was read to its end for the first time."""
        follower = self.follower
        if follower.has_caught_up and not isinstance(follower.failure, NamespaceMissing):
            return follower
        read = follower.begin()
        try:
            yield Wait(read, timeout)
        except TimeoutError:
            raise CutOff(follower.state) from None
        return follower
