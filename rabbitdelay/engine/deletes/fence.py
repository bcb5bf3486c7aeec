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
from functools import partial
from typing import TYPE_CHECKING

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import Fence
from rabbitdelay.engine.consume.subscription import RETRY_SECONDS, Subscription
from rabbitdelay.engine.futures import Future

if TYPE_CHECKING:
    from rabbitdelay.engine.deletes.reader import LogReader

PATIENCE_SECONDS = 5.0
"""Time in which a fence has to be read back before the reader is no longer current."""
LOOK_SECONDS = 1.0
"""Interval at which a fence in flight is checked."""
UNREAD_SECONDS = 2.0
"""Time after its confirm in which a fence may stay unread before the reader subscribes again."""


class FenceWriter:
    """Writes the fences of one reader, on the transport's thread."""

    def __init__(self, log_reader: "LogReader", subscription: Subscription) -> None:
        self._log_reader = log_reader
        self._consumer = log_reader.consumer
        self._appender = log_reader.appender
        self._log = log_reader.consumer.topology.log()
        self._subscription = subscription
        self._nonce: str | None = None
        """Nonce of the newest fence in flight; None without one."""
        self._is_probe = False
        """Whether that fence is a round trip instead of a record."""
        self._awaited_since: float | None = None
        self._written_at = 0.0
        self._confirmed_at: float | None = None
        self._read_count = 0
        self._quiet_since = 0.0
        """Monotonic time since which no record was read."""
        self._timer: object = None

    def begin(self) -> None:
        """Write the first fence of a log that is about to be read."""
        self._read_count = self._log_reader.following.read_count
        self._quiet_since = self._consumer.monotonic()
        self.write()

    def refresh(self) -> None:
        """Write a fence, unless one is in flight."""
        if self._nonce is None and self._subscription.is_open:
            self.write()

    def write(self) -> None:
        """Write a fence or, while publishers are blocked, start a round trip."""
        now, nonce = self._consumer.monotonic(), secrets.token_hex(8)
        self._nonce, self._written_at, self._confirmed_at = nonce, now, None
        self._awaited_since = now if self._awaited_since is None else self._awaited_since
        self._is_probe = self._appender.is_blocked
        self._note_reading(now)
        with self._log_reader.lock:
            self._log_reader.following.await_fence(nonce, now)
        if self._is_probe:
            self._subscription.look(self._log.queue.name, partial(self._answered, nonce))
        else:
            fence = records.encode(Fence(nonce))
            written = self._appender.append(self._log, fence, is_expendable=True)
            written.add_done_callback(partial(self._appended, nonce))
        self._look_later()

    def came_back(self) -> None:
        """Stop checking, unless a newer fence is in flight."""
        self._awaited_since = None
        if not self._log_reader.following.proof.is_awaited:
            self.forget()

    def forget(self) -> None:
        """Forget the fence in flight."""
        self._nonce = self._awaited_since = None
        self._stop_looking()

    # Results

    def _appended(self, nonce: str, done: Future[None]) -> None:
        """Handle the confirm or the error of a fence; called on the publisher's thread."""
        error = done.exception()
        if isinstance(error, Exception):
            self._consumer.call(partial(self._failed, nonce, error))
        else:
            self._consumer.call(partial(self._confirmed, nonce))

    def _confirmed(self, nonce: str) -> None:
        if self._nonce == nonce:
            self._confirmed_at = self._consumer.monotonic()

    def _failed(self, nonce: str, error: Exception) -> None:
        with self._log_reader.lock:
            self._log_reader.following.proof.failed(nonce)
        if self._nonce == nonce:
            self.forget()
            self._log_reader.fence_failed(error)
            self._consumer.call_later(RETRY_SECONDS, self.refresh)

    def _answered(self, nonce: str) -> None:
        """Accept the answer as proof, if the alarm lasts and the log has been read to its end."""
        if not self._appender.is_blocked:
            self._write_instead()
            return
        now, log_reader = self._consumer.monotonic(), self._log_reader
        self._note_reading(now)
        if not log_reader.is_current and now - self._quiet_since < PATIENCE_SECONDS:
            return
        if log_reader.following.is_matching:
            log_reader.read_again()  # no record at the position to resume at: this is another log
        else:
            log_reader.answered(nonce)

    def _write_instead(self) -> None:
        """Write a record, because the alarm is over and a round trip proves nothing any more."""
        if self._nonce is not None and self._is_probe:
            self.write()

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
        if self._nonce is None:
            return
        now = self._consumer.monotonic()
        self._note_reading(now)
        if self._appender.is_blocked:
            self._look_while_blocked(now)
        elif self._is_probe:
            self.write()
        elif now - self._written_at >= PATIENCE_SECONDS:
            self._miss(now)
        else:
            self._look_later()

    def _look_while_blocked(self, now: float) -> None:
        """Start another round trip. If none is answered in time, the reader is cut off."""
        since = self._awaited_since
        if self._log_reader.is_current and since is not None and now - since >= PATIENCE_SECONDS:
            self._log_reader.fence_missed()
        self.write()

    def _miss(self, now: float) -> None:
        """Find out why a fence was not read back, and write another one."""
        is_quiet = self._quiet_since <= self._written_at
        if self._log_reader.is_current or is_quiet:
            self._log_reader.fence_missed()
        confirmed_at = self._confirmed_at
        if is_quiet and confirmed_at is not None and now - confirmed_at >= UNREAD_SECONDS:
            self._log_reader.read_again()
        else:
            self.write()

    def _note_reading(self, now: float) -> None:
        count = self._log_reader.following.read_count
        if count != self._read_count:
            self._read_count, self._quiet_since = count, now
