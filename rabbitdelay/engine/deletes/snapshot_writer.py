"""Compaction: one consumer, chosen by the broker, writes a snapshot of the tombstones.

Who finds that much has come since the last snapshot asks for one, in a queue of which the broker
lets a single consumer read. That one writes it: piece by piece, each confirmed, then the trailer,
then a note in the log, by which all others know.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes import records, snapshots
from rabbitdelay.core.deletes.records import Fence, Taken
from rabbitdelay.core.deletes.snapshots import Writing
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import RETRY_SECONDS, Subscription
from rabbitdelay.engine.deletes.appender import TIMEOUT_SECONDS
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import CutOff, RabbitDelayError

if TYPE_CHECKING:
    from rabbitdelay.engine.deletes.reader import Follower

SNAPSHOT_EVERY = 100_000
"""Cost of the records since the last snapshot at which a new one is due, in tombstones.

core/deletes/cursor.py counts the cost. Half of all tombstones, if that is more, is the bound."""
ASK_AGAIN_SECONDS = 60.0
IN_FLIGHT = 4


class Compactor:
    """Asks for snapshots, and writes them if it is the one; on the wire's thread."""

    def __init__(self, follower: "Follower", consumer: Consumer) -> None:
        topology = consumer.topology
        self._follower = follower
        self._consumer = consumer
        self._requests = topology.log_compaction()
        self._snapshots = topology.log_snapshots()
        self._log = topology.log()
        queue = self._requests.queue.name
        self._subscription = Subscription(consumer, queue, (self._requests,), 1, self)
        self._asked_at: float | None = None
        self._is_writing = False

    # The connection comes and goes

    def connected(self) -> None:
        """Wait for a request."""
        self._subscription.begin()

    def disconnected(self) -> None:
        """Another is the one now, if this was."""
        self._subscription.connection_lost()

    def channel_lost(self, number: int, error: Exception) -> None:
        """Its channel may be the one."""
        self._subscription.channel_lost(number, error)

    def consuming(self) -> None:
        """Nothing to do before a request comes."""

    def interrupted(self, _lost: Sequence[Lease]) -> None:
        """Its queue was deleted, and is made again."""

    def failed(self, error: Exception) -> None:
        """Somebody else will do it, or nobody: then starting takes longer."""
        logger.info("cannot take snapshots of the tombstones: %s", error)
        self._consumer.call_later(RETRY_SECONDS, self._subscription.begin)

    # Asking

    def look(self) -> None:
        """Ask for a snapshot when one is due."""
        now = time.monotonic()
        asked_lately = self._asked_at is not None and now - self._asked_at < ASK_AGAIN_SECONDS
        if self._is_due and not asked_lately and not self._is_writing:
            self._asked_at = now
            self._follower.appender.append(self._requests, b"{}")

    @property
    def _is_due(self) -> bool:
        following = self._follower.following
        count = following.tombstones.count
        return following.is_current and following.since_snapshot >= max(SNAPSHOT_EVERY, count // 2)

    # Writing

    def delivered(self, delivery: Delivery) -> None:
        """A request: this is the one who writes."""
        if not self._is_due or self._is_writing:
            self._done(delivery)
            return
        self._is_writing = True
        threading.Thread(
            target=self._write, args=(delivery,), name="rabbitdelay-snapshot", daemon=True
        ).start()

    def _write(self, delivery: Delivery) -> None:
        began = time.monotonic()
        try:
            count = self._write_pieces()
            seconds = time.monotonic() - began
            logger.info("a snapshot of %d tombstones is written, in %.1f s", count, seconds)
        except (RabbitDelayError, TimeoutError) as error:
            logger.warning("a snapshot of the tombstones could not be written: %s", error)
        finally:
            self._consumer.call(lambda: self._written(delivery))

    def _write_pieces(self) -> int:
        follower, append = self._follower, self._follower.appender.append
        now_ms = time.time_ns() // 1_000_000
        self._renew_anchor()
        with follower.lock:
            following = follower.following
            anchor = following.anchor
            if anchor is None:
                raise CutOff("the log was deleted meanwhile")
            writing = Writing(following.tombstones, anchor, secrets.token_hex(8), now_ms)
        on_their_way: deque[Future[None]] = deque()
        while True:
            with follower.lock:
                piece = writing.next_piece()
            if piece is None:
                break
            on_their_way.append(append(self._snapshots, piece))
            if len(on_their_way) >= IN_FLIGHT:
                on_their_way.popleft().result(2 * TIMEOUT_SECONDS)
        for future in on_their_way:
            future.result(2 * TIMEOUT_SECONDS)
        with follower.lock:
            trailer = writing.trailer()
            again = following.tombstones.records(for_another_log=False)
            doubted = snapshots.doubted_again(following.doubted)
        append(self._snapshots, trailer).result(2 * TIMEOUT_SECONDS)
        # What is said once and holds for good must not go with the segment that it is in.
        for body in (*map(records.encode, (Taken(now_ms), *again)), *doubted):
            append(self._log, body).result(2 * TIMEOUT_SECONDS)
        following.since_snapshot = 0  # the note says so too, and may come after the next request
        return following.tombstones.count

    def _renew_anchor(self) -> None:
        """Write a fence, and wait until one is read: what is before it nobody reads again."""
        follower = self._follower
        before = follower.following.anchor
        fence = records.encode(Fence(secrets.token_hex(8)))
        follower.appender.append(self._log, fence).result(2 * TIMEOUT_SECONDS)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while follower.following.anchor == before:
            if time.monotonic() > deadline:
                raise CutOff("what is written to the log does not come back")
            time.sleep(0.01)

    def _written(self, delivery: Delivery) -> None:
        self._is_writing = False
        self._done(delivery)

    def _done(self, delivery: Delivery) -> None:
        if self._subscription.is_on(delivery.channel):
            self._consumer.send(encode.ack(delivery.channel, delivery.tag))
