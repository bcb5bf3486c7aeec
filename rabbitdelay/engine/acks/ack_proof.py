"""Prove that the queues have applied all settlements before the connection is closed.

A channel of the broker sends the settlements of a quorum queue to it as separate commands. While 32
of them are in flight the channel buffers further ones, and it drops the buffer when it ends, so
that finished jobs would be redelivered (`rabbit_fifo_client.erl`, `settle` and `unsent_commands`,
in 3.10 as in 4.3). The channel sends its buffer when the queue notifies it of the commands that it
has applied.

1. basic.get is a command that the channel waits for, behind those that it has sent before. The
   queue notifies the channel of these first, and answers then (`ra_server.erl`,
   `make_notify_effects`).
2. A passive declare behind the basic.get marks its answer, also that of an earlier basic.get.
3. By then the channel has been notified and sends its buffer. Another declare asks the process of
   the queue, which handles everything that the same channel sent before. Nothing is left to drop.

A classic queue applies settlements in the order of their arrival, so its answer to (1) is proof. If
a basic.get returns a job, the job is requeued.
"""

from collections.abc import Callable
from functools import partial

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.engine.transport import Channel, Then


class AckProof:
    """Requests proof on each channel, and calls `ended` once when all answers have arrived."""

    def __init__(self, send: Callable[[bytes], None], ended: Then) -> None:
        self._send = send
        self._ended: Then | None = ended
        self._missing: set[tuple[int, str]] = set()

    @property
    def missing(self) -> int:
        """Number of queues that have not answered."""
        return len(self._missing)

    def ask(self, channel: Channel, queue: str) -> None:
        """Request proof that a queue has applied what was sent to it on a channel."""
        self._missing.add((channel.number, queue))
        self._send(encode.get(channel.number, queue))
        channel.count(queue, lambda *_: self._ask_again(channel, queue))

    def lose(self, number: int | None) -> None:
        """Stop waiting for a closed channel, or for all channels if None."""
        self._missing = {key for key in self._missing if number is not None and key[0] != number}
        self.end_if_complete()

    def end_if_complete(self) -> None:
        """Call `ended` if all answers have arrived."""
        if not self._missing:
            self.end()

    def end(self) -> None:
        """Call `ended` without waiting for missing answers."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def inbound(self, found: Delivery | GetEmpty) -> None:
        """Requeue a job that basic.get has returned."""
        if isinstance(found, Delivery) and found.consumer_tag is None:
            self._send(encode.nack(found.channel, found.tag, requeue=True))

    def _ask_again(self, channel: Channel, queue: str) -> None:
        channel.count(queue, partial(self._proven, (channel.number, queue)))

    def _proven(self, key: tuple[int, str], *_counts: int) -> None:
        self._missing.discard(key)
        self.end_if_complete()
