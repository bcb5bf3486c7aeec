"""Read the newest snapshot of the tombstones, if there is a valid one.

The last message of the snapshot stream is a trailer, unless a snapshot is being written. Without a
trailer, or if anything else is wrong, there is no snapshot, and the log is read from its beginning.
The length of the stream is unknown, because the broker's message count is up to 5 s old.
"""

from collections.abc import Callable
from functools import partial

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.deletes import snapshots
from rabbitdelay.core.deletes.snapshots import BrokenSnapshot, Reading, Trailer
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.transport import Channel, nothing

PREFETCH = 20
PATIENCE_SECONDS = 5.0
"""Time in which the next message has to arrive."""
OFFSET = "x-stream-offset"
Found = Callable[[], None]
Done = Callable[[Reading | None], None]


class SnapshotReader:
    """Reads one snapshot, on the transport's thread."""

    def __init__(
        self, consumer: Consumer, grace_ms: int, found: Found, done: Done, *, latest_ms: int
    ) -> None:
        self._latest_ms = latest_ms
        self._consumer = consumer
        self._found = found
        self._grace_ms = grace_ms
        self._done: Done | None = done
        self._part = consumer.topology.log_snapshots()
        self._channel: Channel | None = None
        self._trailer_at: int | None = None
        self._last: Delivery | None = None
        self._reading: Reading | None = None
        self._progress = 0

    def start(self) -> None:
        """Start.

        `found` is called if there is a snapshot, `done` with what was read, or with None.
        """
        self._consumer.queues.make((self._part,), self._made)

    def abandon(self) -> None:
        """Stop without calling back, because the connection is lost."""
        self._done = self._channel = None

    def _made(self, error: Exception | None) -> None:
        if error is None:
            self._consumer.channels.open(self._opened, self._inbound)
        else:
            self._finish(str(error))

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.qos(PREFETCH)
        self._look_again_later()
        self._consume("last")

    def _consume(self, offset: str | int) -> None:
        channel = self._channel
        if channel is not None and channel.is_open:
            channel.consume(self._part.queue.name, {OFFSET: offset}, nothing)

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if not isinstance(found, Delivery) or self._done is None:
            return
        self._progress += 1
        self._consumer.send(encode.ack(found.channel, found.tag))
        try:
            self._take(found)
        except BrokenSnapshot as error:
            self._finish(str(error))

    def _take(self, delivery: Delivery) -> None:
        position = delivery.message.headers.get(OFFSET, 0)
        reading = self._reading
        if reading is None:
            self._look_for_trailer(position, delivery.message.body)
            return
        if snapshots.is_piece(delivery.message.body):
            reading.take(delivery.message.body)
        if reading.is_complete or position >= (self._trailer_at or 0):
            self._finish_with(reading)

    def _look_for_trailer(self, position: int, body: bytes) -> None:
        """Handle the last message of the stream: a trailer, or a piece if there is none yet."""
        if snapshots.is_piece(body):
            return
        trailer = snapshots.read_trailer(body)
        self._trailer_at = position
        self._reading = Reading(trailer, grace_ms=self._grace_ms, latest_ms=self._latest_ms)
        if self._reading.is_complete:
            self._finish_with(self._reading)
        else:
            self._read_pieces(max(0, position - trailer.span), trailer)

    def _read_pieces(self, position: int, trailer: Trailer) -> None:
        logger.info("snapshot: reading (%d tombstones)", trailer.count)
        self._found()
        old, self._channel = self._channel, None
        self._consumer.channels.lose(old)
        if old is not None and old.is_open:
            old.close()

        def opened(channel: Channel) -> None:
            self._channel = channel
            channel.qos(PREFETCH)
            self._consume(position)

        self._consumer.channels.open(opened, self._inbound)

    def _look_again_later(self) -> None:
        self._consumer.call_later(PATIENCE_SECONDS, partial(self._look, self._progress))

    def _look(self, progress: int) -> None:
        if self._done is None:
            return
        if self._progress == progress:  # usually because there is no snapshot
            self._finish("not received in time" if self._reading is not None else None)
        else:
            self._look_again_later()

    def _finish_with(self, reading: Reading) -> None:
        reading.result()
        self._finish(None, reading)

    def _finish(self, problem: str | None, reading: Reading | None = None) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        if problem is not None:
            logger.warning("snapshot: not used (%s)", problem)
        channel, self._channel = self._channel, None
        self._consumer.channels.lose(channel)
        if channel is not None and channel.is_open:
            channel.close()
        done(reading)
