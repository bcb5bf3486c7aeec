"""The queue reader: receives messages of one queue on its own channel, and keeps them unacked.

The reader consumes with a prefetch of the requested number of messages, and cancels once it has
them. Requesting each with basic.get takes at least ten times as long. Messages that are not
acknowledged return to the queue when the channel closes, even if the caller has crashed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.settle.acknowledgements import Acks
from rabbitdelay.engine.acks.ack_proof import AckProof
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.orderly_end import PROOF_SECONDS
from rabbitdelay.engine.flow import Flow, Sleep, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Channel, Closed, Connection, nothing
from rabbitdelay.errors import ConnectionFailed

AGAIN_SECONDS = 0.25
"""Interval at which the reader requests a channel while there is no connection."""
QUIET_SECONDS = 2.0
"""Seconds that the reader waits for a counted message, which another client may have taken."""
GIVE_BACK_SECONDS = 2.0
"""Seconds that the reader waits until requeued messages are ready again."""
LOOK_AGAIN_SECONDS = 0.01


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages that are requested together."""

    size: int
    deliveries: list[Delivery] = field(default_factory=list)
    tag: str = ""
    is_ending: bool = False
    done: Future[None] = field(default_factory=Future)
    """Done when no more messages will arrive."""


class QueueReader:
    """Reads one queue over the connection of a consumer; used by one caller at a time."""

    def __init__(self, consumer: Consumer, queue: str, timeout: float) -> None:
        self._consumer = consumer
        self._queue = queue
        self._timeout = timeout
        self._opened: Future[None] = Future()
        self._acks = Acks()
        self._has_acked = False
        # Of the transport's thread, and read by the caller:
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._batch: _Batch | None = None
        self._ack_proof: AckProof | None = None
        self._refused: Closed | None = None
        """Why the broker closed the channel, if it did."""
        self._is_over = False

    # For the caller

    def open(self) -> Flow[None]:
        """Open the channel."""
        deadline = self._consumer.monotonic() + self._timeout
        while self._consumer.monotonic() < deadline:
            self._consumer.call(self._open)
            try:
                yield Wait(self._opened, AGAIN_SECONDS)
            except TimeoutError:
                continue
            return
        raise self._consumer.first.error or ConnectionFailed("the broker does not answer")

    def receive(self, count: int) -> Flow[list[Delivery]]:
        """Return the next messages, unacked; fewer only if another client took the others."""
        batch = _Batch(count)
        self._consumer.call(partial(self._consume, batch))
        quiet_since, before = self._consumer.monotonic(), 0
        while True:
            try:
                yield Wait(batch.done, QUIET_SECONDS)
            except TimeoutError:
                self._raise_if_lost()
            else:
                return self._note(batch.deliveries)
            now, received = self._consumer.monotonic(), len(batch.deliveries)
            if received > before:
                quiet_since, before = now, received
            elif now - quiet_since > self._timeout + QUIET_SECONDS:
                raise ConnectionFailed("the broker does not answer")
            else:
                self._consumer.call(partial(self._end, batch))

    def ack(self, tags: Iterable[int]) -> None:
        """Acknowledge messages."""
        for tag in tags:
            self._acks.finished(tag)
        frames = list(self._acks.take(0.0, everything=True))
        if frames:
            self._has_acked = True
            self._consumer.call(partial(self._send_acks, frames))

    def finish(self) -> Flow[None]:
        """Requeue the messages that are not acknowledged, and close the channel.

        Waits, for a limited time, until the queue has all acknowledgements and the requeued
        messages can be read again.
        """
        if self._has_acked:
            yield from self._prove()
        unacked = len(self._acks)
        if unacked:
            self._consumer.call(self._give_back)
            deadline = self._consumer.monotonic() + GIVE_BACK_SECONDS
            while (yield from self._count()) < unacked and self._consumer.monotonic() < deadline:
                yield Sleep(LOOK_AGAIN_SECONDS)
        self.abandon()

    def abandon(self) -> None:
        """Close the channel without waiting. The broker requeues the unacknowledged messages."""
        self._consumer.call(self._close)

    def _note(self, deliveries: list[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            self._acks.delivered(delivery.tag)
        return deliveries

    def _prove(self) -> Flow[None]:
        """Wait for proof that the queue has received the acknowledgements."""
        proven: Future[None] = Future()
        self._consumer.call(partial(self._begin_proof, proven))
        try:
            yield Wait(proven, PROOF_SECONDS)
        except TimeoutError:
            self._raise_if_lost()
            logger.warning("%s: no proof that the queue has all acknowledgements", self._queue)

    def _count(self) -> Flow[int]:
        counted: Future[int] = Future()
        self._consumer.call(partial(self._begin_count, counted))
        try:
            ready: int = yield Wait(counted, self._timeout)
        except TimeoutError:
            self._raise_if_lost()
            raise ConnectionFailed("the broker does not answer") from None
        return ready

    def _raise_if_lost(self) -> None:
        if self._refused is not None:
            raise self._refused.error()
        if not self._is_usable:
            error = self._consumer.first.error
            raise error or ConnectionFailed(
                "the connection was lost; unacknowledged messages are requeued"
            )

    @property
    def _is_usable(self) -> bool:
        connection, channel = self._connection, self._channel
        is_same = (
            connection is not None
            and connection is self._consumer.connection
            and connection.is_open
        )
        return is_same and channel is not None and channel.is_open

    # On the transport's thread

    def _open(self) -> None:
        connection = self._consumer.connection
        if connection is None or not connection.is_open or connection is self._connection:
            return
        self._connection = connection
        self._consumer.channels.open(self._channel_opened, self._inbound)

    def _channel_opened(self, channel: Channel) -> None:
        self._channel = channel
        if self._is_over:
            self._close()
            return
        channel.on_closed(self._closed)
        channel.on_cancelled(self._cancelled)
        if not self._opened.done():
            self._opened.set_result(None)

    def _consume(self, batch: _Batch) -> None:
        channel, self._batch = self._channel, batch
        if channel is not None and self._is_usable:
            channel.qos(batch.size)
            batch.tag = channel.consume(self._queue, {}, nothing)

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if isinstance(found, GetEmpty) or found.consumer_tag is None:
            if self._ack_proof is not None:
                self._ack_proof.inbound(found)
        elif (batch := self._batch) is not None:
            batch.deliveries.append(found)
            if len(batch.deliveries) == batch.size:
                self._end(batch)

    def _end(self, batch: _Batch) -> None:
        """Cancel the consumer of a batch, which is done when the broker has answered."""
        if self._channel is not None and not batch.is_ending:
            batch.is_ending = True
            self._channel.cancel(batch.tag, partial(self._ended, batch))

    @staticmethod
    def _ended(batch: _Batch) -> None:
        if not batch.done.done():
            batch.done.set_result(None)

    def _cancelled(self, _tag: str) -> None:
        """End the batch, because the broker cancels a consumer whose queue was deleted."""
        if self._batch is not None:
            self._ended(self._batch)

    def _closed(self, _channel: Channel, closed: Closed) -> None:
        batch, self._refused = self._batch, closed
        if batch is not None and not batch.done.done():
            batch.done.set_exception(closed.error())

    def _send_acks(self, frames: list[tuple[int, bool]]) -> None:
        if self._channel is not None and self._is_usable:
            number = self._channel.number
            pieces = [encode.ack(number, tag, multiple=multiple) for tag, multiple in frames]
            self._consumer.send(b"".join(pieces))

    def _begin_proof(self, proven: Future[None]) -> None:
        if self._channel is not None and self._is_usable:
            self._ack_proof = AckProof(self._consumer.send, partial(proven.set_result, None))
            self._ack_proof.ask(self._channel, self._queue)

    def _give_back(self) -> None:
        """Requeue with one nack, because RabbitMQ 4.3 counts a reject as a delivery."""
        if self._channel is not None and self._is_usable:
            self._consumer.send(encode.requeue_all(self._channel.number))

    def _begin_count(self, counted: Future[int]) -> None:
        if self._channel is not None and self._is_usable:
            self._channel.count(self._queue, lambda ready, _: counted.set_result(ready))

    def _close(self) -> None:
        self._is_over = True
        channel, is_usable = self._channel, self._is_usable
        if channel is not None and is_usable:
            self._consumer.channels.lose(channel)
            channel.close()
        self._channel = None
