"""The fences of a follower: written when proof is needed, and watched until they come back.

A fence may fail to come back in three ways. The record could not be written: another is written.
It was written, and nothing is read: the log is subscribed to again. It was written, and the log is
long: others follow it, and the first that comes back counts.

While the broker has an alarm, publishers are blocked: neither a fence nor a delete can be written.
Then a round trip on the log's own channel is the proof. The broker sends what it has of the log
before it answers, and a connection that has fallen silent does not answer.
"""

import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import Fence
from rabbitdelay.engine.consume.subscription import RETRY_SECONDS, Subscription
from rabbitdelay.engine.futures import Future

if TYPE_CHECKING:
    from rabbitdelay.engine.deletes.reader import Follower

PATIENCE_SECONDS = 5.0
"""How long a fence may take to come back before the follower is no longer current."""
LOOK_SECONDS = 1.0
"""How often a fence on its way is looked at."""
UNREAD_SECONDS = 2.0
"""How long after its confirm a fence may stay unread, before the log is subscribed to again."""


class Fences:
    """Writes the fences of one follower; on the wire's thread."""

    def __init__(self, follower: "Follower", subscription: Subscription) -> None:
        self._follower = follower
        self._consumer = follower.consumer
        self._appender = follower.appender
        self._log = follower.consumer.topology.log()
        self._subscription = subscription
        self._nonce: str | None = None
        """The newest fence on its way."""
        self._is_probe = False
        """Whether that is a round trip, and not a record."""
        self._awaited_since: float | None = None
        self._written_at = 0.0
        self._confirmed_at: float | None = None
        self._read_count = 0
        self._quiet_since = 0.0
        """Since when nothing was read from the log."""
        self._timer: object = None

    def begin(self) -> None:
        """Write the first fence for a log that is read from now on."""
        self._read_count = self._follower.following.read_count
        self._quiet_since = time.monotonic()
        self.write()

    def refresh(self) -> None:
        """Write a fence, unless one is on its way."""
        if self._nonce is None and self._subscription.is_open:
            self.write()

    def write(self) -> None:
        """Write a fence, or ask for a round trip while publishers are blocked."""
        now, nonce = time.monotonic(), secrets.token_hex(8)
        self._nonce, self._written_at, self._confirmed_at = nonce, now, None
        self._awaited_since = now if self._awaited_since is None else self._awaited_since
        self._is_probe = self._appender.is_blocked
        self._note_reading(now)
        with self._follower.lock:
            self._follower.following.await_fence(nonce, now)
        if self._is_probe:
            self._subscription.look(self._log.queue.name, partial(self._answered, nonce))
        else:
            fence = records.encode(Fence(nonce))
            written = self._appender.append(self._log, fence, is_expendable=True)
            written.add_done_callback(partial(self._appended, nonce))
        self._look_later()

    def came_back(self) -> None:
        """Stop watching, unless a newer fence is on its way."""
        self._awaited_since = None
        if not self._follower.following.proof.is_awaited:
            self.forget()

    def forget(self) -> None:
        """Await no fence."""
        self._nonce = self._awaited_since = None
        self._stop_looking()

    # What becomes of a fence

    def _appended(self, nonce: str, done: Future[None]) -> None:
        """Note that a fence was written, or was not; on the publisher's thread."""
        error = done.exception()
        if isinstance(error, Exception):
            self._consumer.call(partial(self._failed, nonce, error))
        else:
            self._consumer.call(partial(self._confirmed, nonce))

    def _confirmed(self, nonce: str) -> None:
        if self._nonce == nonce:
            self._confirmed_at = time.monotonic()

    def _failed(self, nonce: str, error: Exception) -> None:
        with self._follower.lock:
            self._follower.following.proof.failed(nonce)
        if self._nonce == nonce:
            self.forget()
            self._follower.fence_failed(error)
            self._consumer.call_later(RETRY_SECONDS, self.refresh)

    def _answered(self, nonce: str) -> None:
        """Take the answer for proof, if the alarm lasts and the log has been read to its end."""
        if not self._appender.is_blocked:
            self._write_instead()
            return
        now, follower = time.monotonic(), self._follower
        self._note_reading(now)
        if not follower.is_current and now - self._quiet_since < PATIENCE_SECONDS:
            return
        if follower.following.is_matching:
            follower.read_again()  # its last position has no record: this is another log
        else:
            follower.answered(nonce)

    def _write_instead(self) -> None:
        """Write a record: the alarm is over, and a round trip proves nothing any more."""
        if self._nonce is not None and self._is_probe:
            self.write()

    # Watching

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
        now = time.monotonic()
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
        """Ask for a round trip, again and again. What does not answer in time is cut off."""
        since = self._awaited_since
        if self._follower.is_current and since is not None and now - since >= PATIENCE_SECONDS:
            self._follower.fence_missed()
        self.write()

    def _miss(self, now: float) -> None:
        """Find out why a fence has not come back, and write another."""
        is_quiet = self._quiet_since <= self._written_at
        if self._follower.is_current or is_quiet:
            self._follower.fence_missed()
        confirmed_at = self._confirmed_at
        if is_quiet and confirmed_at is not None and now - confirmed_at >= UNREAD_SECONDS:
            self._follower.read_again()
        else:
            self.write()

    def _note_reading(self, now: float) -> None:
        count = self._follower.following.read_count
        if count != self._read_count:
            self._read_count, self._quiet_since = count, now
