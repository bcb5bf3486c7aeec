"""Proofs: that the broker's queues have what settles their messages, before a connection closes.

A channel of the broker sends the settlements of a quorum queue as commands of their own. While
32 of them are in flight it buffers the others, and drops the buffer when the channel ends:
finished jobs would come again (`rabbit_fifo_client.erl`, `settle` and `unsent_commands`, in 3.10
as in 4.3). The buffer is sent when the queue tells the channel what it has applied.

1. basic.get is a command that the channel waits for, behind those that it has sent before. The
   queue tells of these first, and answers then (`ra_server.erl`, `make_notify_effects`).
2. A passive declare behind it marks the answer, also of an earlier basic.get.
3. By then the channel has been told, and sends its buffer. Another declare asks the queue's
   process, which takes what came from the same channel before. Nothing is left to be dropped.

A classic queue takes settlements in order as they come, so that its answer to (1) is proof. A get
may bring a job, which is given back.
"""

from collections.abc import Callable
from functools import partial

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.engine.transport import Channel, Then


class Proofs:
    """Asks for proof on each channel, and calls `ended` once when none is missing any more."""

    def __init__(self, send: Callable[[bytes], None], ended: Then) -> None:
        self._send = send
        self._ended: Then | None = ended
        self._missing: set[tuple[int, str]] = set()

    @property
    def missing(self) -> int:
        """How many queues have not answered."""
        return len(self._missing)

    def ask(self, channel: Channel, queue: str) -> None:
        """Ask for proof that a queue has what was sent to it on a channel."""
        self._missing.add((channel.number, queue))
        self._send(encode.get(channel.number, queue))
        channel.count(queue, lambda *_: self._ask_again(channel, queue))

    def lose(self, number: int | None) -> None:
        """Stop waiting for a channel that is gone; None is all of them."""
        self._missing = {key for key in self._missing if number is not None and key[0] != number}
        self.end_if_complete()

    def end_if_complete(self) -> None:
        """Call `ended` if nothing is missing."""
        if not self._missing:
            self.end()

    def end(self) -> None:
        """Wait no longer."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def inbound(self, found: Delivery | GetEmpty) -> None:
        """Give back a job that was only asked for to have an answer."""
        if isinstance(found, Delivery) and found.consumer_tag is None:
            self._send(encode.nack(found.channel, found.tag, requeue=True))

    def _ask_again(self, channel: Channel, queue: str) -> None:
        channel.count(queue, partial(self._proven, (channel.number, queue)))

    def _proven(self, key: tuple[int, str], *_counts: int) -> None:
        self._missing.discard(key)
        self.end_if_complete()
