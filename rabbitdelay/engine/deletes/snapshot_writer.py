"""Write snapshots of the tombstones, by one consumer that the broker chooses.

A consumer that finds that much was written since the last snapshot requests one, in a queue with a
single active consumer. The active consumer writes the snapshot: the pieces, each confirmed, then
the trailer, then a record in the log that tells all other consumers.
"""

import secrets
import threading
from collections import deque
from collections.abc import Sequence

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes import records, snapshots
from rabbitdelay.core.deletes.records import Fence, SnapshotTaken
from rabbitdelay.core.deletes.snapshots import Writing
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import RETRY_SECONDS, Subscription
from rabbitdelay.engine.deletes.appender import TIMEOUT_SECONDS, Appender
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import CutOff, NamespaceMissing, RabbitDelayError

SNAPSHOT_EVERY = 100_000
"""Cost of the records since the last snapshot at which the next one is due, in tombstones.

core/deletes/cursor.py counts the cost. The bound is half of all tombstones, if that is more.
"""
ASK_AGAIN_SECONDS = 60.0
IN_FLIGHT = 4


class SnapshotWriter:
    """Requests snapshots, and writes them if this consumer is the active one.

    Runs on the transport's thread, except for the writing.
    """

    def __init__(self, consumer: Consumer, known: KnownDeletes, appender: Appender) -> None:
        topology = consumer.topology
        self._consumer = consumer
        self._known = known
        self._appender = appender
        self._requests = topology.log_compaction()
        self._snapshots = topology.log_snapshots()
        self._log = topology.log()
        queue = self._requests.queue.name
        self._subscription = Subscription(consumer, queue, (self._requests,), 1, self)
        self._asked_at: float | None = None
        self._is_writing = False

    # Called by the reader and the subscription

    def connected(self) -> None:
        """Subscribe to the requests."""
        self._subscription.begin()

    def disconnected(self) -> None:
        """Unsubscribe; the broker activates another consumer."""
        self._subscription.connection_lost()

    def channel_lost(self, number: int, error: Exception) -> None:
        """Handle the loss of a channel, if it is the subscription's."""
        self._subscription.channel_lost(number, error)

    def consuming(self) -> None:
        """Do nothing until a request is delivered."""

    def interrupted(self, _lost: Sequence[Lease]) -> None:
        """Do nothing: the queue was deleted, and is declared again."""

    def failed(self, error: Exception) -> None:
        """Retry later. If no other consumer writes snapshots, workers take longer to start."""
        if not isinstance(error, NamespaceMissing):  # which the reader of the log has told
            logger.info("snapshot: requests not consumed (%s)", error)
        self._consumer.call_later(RETRY_SECONDS, self._subscription.begin)

    # Requesting

    def look(self) -> None:
        """Request a snapshot if one is due."""
        now = self._consumer.monotonic()
        asked_lately = self._asked_at is not None and now - self._asked_at < ASK_AGAIN_SECONDS
        if self._is_due and not asked_lately and not self._is_writing:
            self._asked_at = now
            self._appender.append(self._requests, b"{}")

    @property
    def _is_due(self) -> bool:
        following = self._known.following
        count = following.tombstones.count
        return following.is_current and following.since_snapshot >= max(SNAPSHOT_EVERY, count // 2)

    # Writing

    def delivered(self, delivery: Delivery) -> None:
        """Handle a request, as the active consumer."""
        if not self._is_due or self._is_writing:
            self._done(delivery)
            return
        self._is_writing = True
        threading.Thread(
            target=self._write, args=(delivery,), name="rabbitdelay-snapshot", daemon=True
        ).start()

    def _write(self, delivery: Delivery) -> None:
        began = self._consumer.monotonic()
        try:
            count = self._write_pieces()
            seconds = self._consumer.monotonic() - began
            logger.info("snapshot: written (%d tombstones, %.1f s)", count, seconds)
        except (RabbitDelayError, TimeoutError) as error:
            logger.warning("snapshot: not written (%s)", error)
        finally:
            self._consumer.call(lambda: self._written(delivery))

    def _write_pieces(self) -> int:
        known, append = self._known, self._appender.append
        now_ms = known.now_ms()
        self._renew_anchor()
        with known.locked() as following:
            anchor = following.anchor
            if anchor is None:
                raise CutOff("the log of deletes was deleted in the meantime")
            writing = Writing(following.tombstones, anchor, secrets.token_hex(8), now_ms)
        in_flight: deque[Future[None]] = deque()
        while True:
            with known.locked():
                piece = writing.next_piece()
            if piece is None:
                break
            in_flight.append(append(self._snapshots, piece))
            if len(in_flight) >= IN_FLIGHT:
                in_flight.popleft().result(2 * TIMEOUT_SECONDS)
        for future in in_flight:
            future.result(2 * TIMEOUT_SECONDS)
        with known.locked():
            trailer = writing.trailer()
            again = following.tombstones.records(for_another_log=False)
            doubted = snapshots.doubted_again(following.doubted)
        append(self._snapshots, trailer).result(2 * TIMEOUT_SECONDS)
        # Records that are written once and stay in force must outlive the segment they are in.
        for body in (*map(records.encode, (SnapshotTaken(now_ms), *again)), *doubted):
            append(self._log, body).result(2 * TIMEOUT_SECONDS)
        following.since_snapshot = 0  # the record does this too, perhaps after the next request
        return following.tombstones.count

    def _renew_anchor(self) -> None:
        """Write a fence and wait until it is read, so that readers can skip the records before."""
        before = self._known.following.anchor
        fence = records.encode(Fence(secrets.token_hex(8)))
        self._appender.append(self._log, fence).result(2 * TIMEOUT_SECONDS)
        deadline = self._consumer.monotonic() + TIMEOUT_SECONDS
        pause = threading.Event()
        while self._known.following.anchor == before:
            if self._consumer.monotonic() > deadline:
                raise CutOff("a fence written to the log of deletes was not read back")
            pause.wait(0.01)

    def _written(self, delivery: Delivery) -> None:
        self._is_writing = False
        self._done(delivery)

    def _done(self, delivery: Delivery) -> None:
        if self._subscription.is_on(delivery.channel):
            self._consumer.send(encode.ack(delivery.channel, delivery.tag))
