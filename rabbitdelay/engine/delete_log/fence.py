"""Write fences to the log of deletes when proof is needed, and check that they are read back.

A fence may fail to come back in three ways:

1. The record could not be written: another one is written.
2. The record was written, but nothing is read: the reader subscribes again.
3. The record was written, but the log is long: more fences follow, and the first one read counts.

While the broker has an alarm, publishers are blocked: neither a fence nor a delete can be written.
A round trip on the reader's own channel is the proof then. The broker sends the records that it has
before it answers, and a connection that has gone silent does not answer.
"""

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import Fence
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import RETRY_SECONDS, Subscription
from rabbitdelay.engine.deletes.appender import Appender
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.futures import Future

if TYPE_CHECKING:
    from rabbitdelay.engine.delete_log.record_reader import RecordReader

PATIENCE_SECONDS = 5.0
"""Time in which a fence has to be read back before the reader is no longer current."""
LOOK_SECONDS = 1.0
"""Interval at which a fence in flight is checked."""
UNREAD_SECONDS = 2.0
"""Time after its confirm in which a fence may stay unread before the reader subscribes again."""


@dataclass(slots=True)
class _InFlight:
    """The newest fence that was written and not read back."""

    nonce: str
    written_at: float
    is_probe: bool
    """Whether it is a round trip instead of a record."""
    confirmed_at: float | None = None


class FenceWriter:
    """Writes the fences of one reader, on the transport's thread."""

    def __init__(
        self,
        consumer: Consumer,
        known: KnownDeletes,
        appender: Appender,
        subscription: Subscription,
        record_reader: "RecordReader",
    ) -> None:
        self._consumer = consumer
        self._known = known
        self._appender = appender
        self._subscription = subscription
        self._record_reader = record_reader
        self._log = consumer.topology.log()
        self._in_flight: _InFlight | None = None
        self._awaited_since: float | None = None
        """Monotonic time at which the oldest fence was written of which none was read back."""
        self._read_count = 0
        self._quiet_since = 0.0
        """Monotonic time since which no record was read."""
        self._timer: object = None

    def begin(self) -> None:
        """Write the first fence of a log that is about to be read."""
        self._read_count = self._known.following.read_count
        self._quiet_since = self._consumer.monotonic()
        self._write()

    def refresh(self) -> None:
        """Write a fence, unless one is in flight."""
        if self._in_flight is None and self._subscription.is_open:
            self._write()

    def came_back(self) -> None:
        """Stop checking, unless a newer fence is in flight."""
        self._awaited_since = None
        if not self._known.following.proof.is_awaited:
            self.forget()

    def forget(self) -> None:
        """Forget the fence in flight."""
        self._in_flight = self._awaited_since = None
        self._stop_looking()

    def _write(self) -> None:
        """Write a fence or, while publishers are blocked, start a round trip."""
        now, nonce = self._consumer.monotonic(), secrets.token_hex(8)
        is_probe = self._appender.is_blocked
        self._in_flight = _InFlight(nonce, now, is_probe)
        self._awaited_since = now if self._awaited_since is None else self._awaited_since
        self._note_reading(now)
        with self._known.locked() as following:
            following.await_fence(nonce, now)
        if is_probe:
            self._subscription.look(self._log.queue.name, partial(self._answered, nonce))
        else:
            fence = records.encode(Fence(nonce))
            written = self._appender.append(self._log, fence, is_expendable=True)
            written.add_done_callback(partial(self._appended, nonce))
        self._look_later()

    # Results

    def _appended(self, nonce: str, done: Future[None]) -> None:
        """Handle the confirm or the error of a fence; called on the publisher's thread."""
        error = done.exception()
        if isinstance(error, Exception):
            self._consumer.call(partial(self._failed, nonce, error))
        else:
            self._consumer.call(partial(self._confirmed, nonce))

    def _confirmed(self, nonce: str) -> None:
        if self._in_flight is not None and self._in_flight.nonce == nonce:
            self._in_flight.confirmed_at = self._consumer.monotonic()

    def _failed(self, nonce: str, error: Exception) -> None:
        with self._known.locked() as following:
            following.proof.failed(nonce)
        if self._in_flight is not None and self._in_flight.nonce == nonce:
            self.forget()
            self._record_reader.fence_failed(error)
            self._consumer.call_later(RETRY_SECONDS, self.refresh)

    def _answered(self, nonce: str) -> None:
        """Accept the answer as proof, if the alarm lasts and the log has been read to its end."""
        if not self._appender.is_blocked:
            self._write_instead()
            return
        now = self._consumer.monotonic()
        self._note_reading(now)
        if not self._known.is_current and now - self._quiet_since < PATIENCE_SECONDS:
            return
        if self._known.following.is_matching:
            # There is no record at the position to resume at, so this is another log.
            self._record_reader.read_again()
        else:
            self._record_reader.answered(nonce)

    def _write_instead(self) -> None:
        """Write a record, because the alarm is over and a round trip proves nothing any more."""
        if self._in_flight is not None and self._in_flight.is_probe:
            self._write()

    # Checking

    def _look_later(self) -> None:
        self._stop_looking()
        self._timer = self._consumer.call_later(LOOK_SECONDS, self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._consumer.cancel(self._timer)
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        fence = self._in_flight
        if fence is None:
            return
        now = self._consumer.monotonic()
        self._note_reading(now)
        if self._appender.is_blocked:
            self._look_while_blocked(now)
        elif fence.is_probe:
            self._write()
        elif now - fence.written_at >= PATIENCE_SECONDS:
            self._miss(fence, now)
        else:
            self._look_later()

    def _look_while_blocked(self, now: float) -> None:
        """Start another round trip. If none is answered in time, the reader is cut off."""
        since = self._awaited_since
        if self._known.is_current and since is not None and now - since >= PATIENCE_SECONDS:
            self._record_reader.fence_missed()
        self._write()

    def _miss(self, fence: _InFlight, now: float) -> None:
        """Find out why a fence was not read back, and write another one."""
        is_quiet = self._quiet_since <= fence.written_at
        if self._known.is_current or is_quiet:
            self._record_reader.fence_missed()
        confirmed_at = fence.confirmed_at
        if is_quiet and confirmed_at is not None and now - confirmed_at >= UNREAD_SECONDS:
            self._record_reader.read_again()
        else:
            self._write()

    def _note_reading(self, now: float) -> None:
        count = self._known.following.read_count
        if count != self._read_count:
            self._read_count, self._quiet_since = count, now
