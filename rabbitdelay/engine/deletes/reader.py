"""Read the log of deletes of a consuming connection, and say when no job may be handed out.

Until the log has been read to its end, and whenever the connection to it is lost, the reader is not
current and no job is handed out.
"""

import concurrent.futures
from collections.abc import Callable, Sequence
from functools import partial

from rabbitdelay.core.amqp import encode, reply_codes
from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes import doubt, records, snapshots
from rabbitdelay.core.deletes.cursor import Following, Offset, Read
from rabbitdelay.core.deletes.records import RecordTooNew
from rabbitdelay.core.deletes.snapshots import Reading
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import RETRY_SECONDS, Subscription
from rabbitdelay.engine.deletes.appender import Appender
from rabbitdelay.engine.deletes.delete_check import DeleteCheck
from rabbitdelay.engine.deletes.fence import FenceWriter
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.deletes.snapshot_reader import SnapshotReader
from rabbitdelay.engine.deletes.snapshot_writer import SnapshotWriter
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import ConnectionFailed, CutOff, NamespaceMissing, PermissionRefused

PREFETCH = 2_000
OFFSET = "x-stream-offset"
ANCHOR_SECONDS = 30.0
"""Interval of the fences in a log that is read and has no newer fence. After a reconnect, reading
resumes at the last fence."""
SWEEP_SECONDS = 1.0
ALARM = "slow because of the broker's memory or disk alarm"
NAMESPACE_SECONDS = 0.5
"""Interval at which a reader looks for a namespace that does not exist yet."""
QUIET_SECONDS = 2.0
TELL_SECONDS = 5.0
"""Interval of the log lines about a reading that takes longer than QUIET_SECONDS."""


class LogReader(DeleteCheck):
    """Reads the log for one consumer, on the transport's thread. Any thread may query the view."""

    def __init__(
        self,
        consumer: Consumer,
        known: KnownDeletes,
        appender: Appender,
        *,
        is_wanted: bool = True,
    ) -> None:
        super().__init__(known, consumer.monotonic)
        self.consumer = consumer
        self.appender = appender
        self.problem: Exception | None = None
        """The error that currently prevents reading; None if there is none."""
        self.failure: Exception | None = None
        """The error that has to be fixed before the log can be read at all."""
        self.caught_up: Future[None] = Future()
        """Done when the reader was current once, or cannot become current because of `problem`."""
        self.caught_up.set_running_or_notify_cancel()
        self._awaited: list[Future[None]] = []
        """Done when the log was read to its end, or is known to be unreadable."""
        self._is_asked_again = False
        """Whether to look for a missing namespace again as soon as the last look is answered."""
        self._log = consumer.topology.log()
        self._watchers: list[Callable[[], None]] = []
        self._subscription = Subscription(
            consumer,
            self._log.queue.name,
            (self._log,),
            PREFETCH,
            self,
            arguments=self._where_to_read,
        )
        self._fences = FenceWriter(self, self._subscription)
        self._snapshot_writer = SnapshotWriter(self, consumer)
        self._reader: SnapshotReader | None = None
        self._is_wanted = is_wanted
        self._must_write_all = False
        self._cut_off_at = 0.0
        self._told_at = 0.0
        self._unacked: tuple[int, int] | None = None
        self._anchored_at = self._monotonic()
        self._passed_over = 0
        self._is_sweeping = False
        self._has_closed = False

    # From any thread

    @property
    def has_caught_up(self) -> bool:
        """Whether the reader was current once, or can never be."""
        return self.caught_up.done()

    def begin(self) -> Future[None]:
        """Start to read the log, for a client that has not handed out jobs so far.

        The future is done when the log was read to its end or cannot be read, with the reason in
        `failure`. A missing namespace is looked for again.
        """
        read: Future[None] = Future()
        read.set_running_or_notify_cancel()
        if not self.consumer.call(partial(self._begin, read)):
            read.set_result(None)
        return read

    def _begin(self, read: Future[None]) -> None:
        is_missing = isinstance(self.failure, NamespaceMissing)
        if self._has_closed or (self.has_caught_up and not is_missing):
            read.set_result(None)
            return
        self._awaited.append(read)
        if not self._is_wanted:
            self._is_wanted = True
            if self.consumer.first.made and self.consumer.first.error is None:
                self.connected()
        elif is_missing:
            self._is_asked_again = True  # an answer that is in flight is older than this call
            self._look_again()

    def _look_again(self) -> None:
        if self._subscription.is_idle:
            self._is_asked_again = False
            self._subscription.begin()

    def recall(self) -> None:
        """Read the whole log again, for a job that was delayed longer than tombstones are kept."""
        self.consumer.call(self._recall)

    def refresh(self) -> None:
        """Renew the proof that every delete is known, unless that is in progress."""
        self.consumer.call(self._refresh)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Register a callback for a change of `is_current` or of the paused topics.

        It is called on the transport's thread.
        """
        self._watchers.append(watcher)

    @property
    def state(self) -> str:
        """Description of the reader's state, for errors and log lines."""
        if self.is_current:
            return "current"
        if self.problem is not None:
            return f"cut off from the log of deletes: {self.problem}"
        text = f"reading the log of deletes, {self.following.read_count:,} records so far"
        return f"{text} ({ALARM})" if self.appender.is_blocked else text

    # Called by the consumer

    def connected(self) -> None:
        """Start to read the log and, at the same time, the newest snapshot, which may be faster."""
        if not self._is_wanted:
            return
        self._cut_off_at = self._monotonic()
        self._sweep_later()
        self._snapshot_writer.connected()
        self._subscription.begin()
        if not self.has_caught_up:
            self._reader = SnapshotReader(
                self.consumer,
                self.known.grace_ms,
                self._snapshot_found,
                self._snapshot_read,
                latest_ms=doubt.latest_ms(self.known.now_ms()),
            )
            self._reader.start()

    def _snapshot_found(self) -> None:
        """Stop reading the log, because its records up to now are in the snapshot."""
        if not self.has_caught_up:
            self._let_log_wait()

    def _snapshot_read(self, reading: Reading | None) -> None:
        if self.has_caught_up:
            return
        if reading is not None:
            self._let_log_wait()  # the snapshot replaces the records read in the meantime
            with self.lock:
                self.known.following = Following(reading.tombstones, reading.trailer.anchor)
                self.following.snapshot_ms = reading.trailer.time_ms
                self.following.doubted = reading.doubted
        self._subscription.begin()

    def _let_log_wait(self) -> None:
        self._fences.forget()
        self._subscription.stop()

    def disconnected(self, _error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """Become not current."""
        if self._reader is not None:
            self._reader.abandon()
            self._reader = None
        self._subscription.connection_lost()
        self._snapshot_writer.disconnected()
        self._cut_off()

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """Handle the loss of a channel, if it is one of the reader's."""
        self._snapshot_writer.channel_lost(number, error)
        if self._subscription.channel_lost(number, error):
            self._cut_off(error)

    def expired(self, _expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing, because the reader has no leases."""

    def read(self) -> None:
        """Acknowledge what was read, because a stream sends only as much as may be unacked."""
        if self._unacked is not None:
            channel, tag = self._unacked
            self._unacked = None
            if self._subscription.is_on(channel):  # an ack on a closed channel ends the connection
                self.consumer.send(encode.ack(channel, tag, multiple=True))

    def closed(self) -> None:
        """Stop reading. A timer of the event loop may still fire, without effect."""
        self._fences.forget()
        self._has_closed = True
        self._set_caught_up()

    # The log

    def _where_to_read(self) -> dict[str, Offset]:
        self._unacked = None  # its channel is closed, and the new one may have the same number
        return {OFFSET: self.following.begin()}

    def consuming(self) -> None:
        """Write a fence. Once it is read, every record before it has been read."""
        if self._must_write_all:
            self._must_write_all = False
            self._write_all()
        self._fences.begin()

    def interrupted(self, _lost: Sequence[Lease]) -> None:
        """Handle the deletion of the stream.

        It is declared again, and the known records are written to it.
        """
        self._cut_off(CutOff(f"stream {self._log.queue.name} was deleted"))
        self._must_write_all = True
        with self.lock:
            self.following.start_over()

    def failed(self, error: Exception) -> None:
        """Retry after an error of a first attempt; report an error that has to be fixed."""
        self.failure = None if reply_codes.is_passing(str(error)) else error
        self._cut_off(error)
        if self._is_asked_again:
            self._look_again()
            return
        if self.failure is not None:
            self._set_caught_up()
        is_missing = isinstance(error, NamespaceMissing)
        pause = NAMESPACE_SECONDS if is_missing else RETRY_SECONDS
        self.consumer.call_later(pause, self._subscription.begin)

    def delivered(self, delivery: Delivery) -> None:
        """Read a record."""
        self._unacked = (delivery.channel, delivery.tag)
        message = delivery.message
        position = message.headers.get(OFFSET, 0)
        try:
            with self.lock:
                read = self.following.read(
                    position,
                    message.body,
                    self._monotonic(),
                    doubt.latest_ms(self.known.now_ms()),
                )
        except RecordTooNew as error:
            self._give_up(error)
            return
        if read is Read.CAUGHT_UP:
            self._caught_up()
        elif read is Read.SWITCHED:
            self._tell()
        elif read is Read.OTHER_LOG:
            self._begin_anew()
        elif read is Read.SKIPPED:
            self._warn_of_garbage(position, "not a record")
        elif read is Read.DOUBTED:
            self._warn_of_garbage(position, "dated over 7 days ahead of this clock")

    def _warn_of_garbage(self, position: int, reason: str) -> None:
        """Warn of the 1st, 2nd, 4th, 8th … skipped record, because there may be very many."""
        self._passed_over += 1
        if self._passed_over.bit_count() == 1:
            text = "log of deletes: record skipped (%s; position %s of %s, %d so far)"
            logger.warning(text, reason, position, self._log.queue.name, self._passed_over)

    def _caught_up(self) -> None:
        self._fences.came_back()
        self._anchored_at = self._monotonic()
        was_cut_off = self.problem is not None
        self.problem = self.failure = None
        if was_cut_off or not self.has_caught_up:
            known = self.following.tombstones
            level = logger.warning if was_cut_off else logger.info
            level("log of deletes: read (%d tombstones)", known.count)
        self._set_caught_up()
        self._tell()
        self._snapshot_writer.look()

    def _set_caught_up(self) -> None:
        if not self.has_caught_up:
            self.caught_up.set_result(None)
        awaited, self._awaited = self._awaited, []
        for read in awaited:
            read.set_result(None)

    def _cut_off(self, problem: Exception | None = None) -> None:
        """Become not current until the log is read again."""
        self._fences.forget()
        self._unacked = None
        with self.lock:
            self.following.cut_off()
        self._no_longer_current(problem)

    def _no_longer_current(self, problem: Exception | None) -> None:
        if problem is not None and self.problem is None:
            logger.warning("log of deletes: cut off, handing out no jobs (%s)", problem)
        self.problem = problem or self.problem
        with self.lock:
            self.following.is_current = False
        self._tell()

    def _give_up(self, error: Exception) -> None:
        """Stop reading at a record of a later version, because it may be a delete."""
        self.failure = error
        self._cut_off(error)
        self._subscription.end()
        self._set_caught_up()

    def _begin_anew(self) -> None:
        """Read a new log from its beginning, and write the known records to it."""
        logger.warning(
            "log of deletes: replaced, writing the known records to the new one (%s)",
            self._log.queue.name,
        )
        self._cut_off()
        self._must_write_all = True
        with self.lock:
            self.following.start_over()
        self._subscription.begin_again()

    def _write_all(self) -> None:
        """Write all known records to a new log, because those of the old log are still valid."""
        known, doubted = self.following.tombstones, self.following.doubted
        with self.lock:
            written = [records.encode(record) for record in known.records(for_another_log=True)]
            written += snapshots.pieces_of(known) if known.table.count else ()
            written += snapshots.doubted_again(doubted)
        for body in written:
            self.appender.append(self._log, body).add_done_callback(self._wrote)

    def _wrote(self, done: concurrent.futures.Future[None]) -> None:
        """Start again if a record was not written, because other consumers have only the log."""
        if done.exception() is not None:
            self.consumer.call(self._write_again)

    def _write_again(self) -> None:
        if not self._must_write_all and not self.consumer.has_ended:
            self._must_write_all = True
            self._subscription.begin_again()

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher()

    # Fences

    def _refresh(self) -> None:
        with self.lock:
            self._is_refreshing = False
        if not self._has_closed:
            self._fences.refresh()

    def fence_failed(self, error: Exception) -> None:
        """Note that a fence could not be written; another follows, unless none was ever written."""
        if self._has_closed:
            return
        if isinstance(error, PermissionRefused) and not self.has_caught_up:
            self._subscription.stop()
            self.failed(error)
        else:
            self._no_longer_current(CutOff(f"writing a fence failed: {error}"))

    def fence_missed(self) -> None:
        """Note that a fence was not read back in time."""
        self._no_longer_current(CutOff("a record written to it was not read back in time"))

    def answered(self, nonce: str) -> None:
        """Accept a round trip instead of a fence, while an alarm blocks publishers."""
        with self.lock:
            if not self.following.proof.came_back(nonce, self._monotonic()):
                return
            self.following.is_current = True
        self._caught_up()

    def read_again(self) -> None:
        """Subscribe to the log again, because a fence was written but not read."""
        if self.following.is_matching:
            self._begin_anew()
        else:
            self._cut_off()
            self._subscription.begin_again()

    def _anchor(self) -> None:
        """Write a fence to a log that others write to, so that reading can resume there."""
        now = self._monotonic()
        if self.following.since_anchor == 0:
            self._anchored_at = now
        elif self.is_current and now - self._anchored_at >= ANCHOR_SECONDS:
            self._fences.refresh()

    # Expiry, and reading the whole log again

    def _sweep_later(self) -> None:
        if not self._is_sweeping:
            self._is_sweeping = True
            self.consumer.call_sometime(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._is_sweeping = False
        if self._has_closed:
            return
        self._forget_some()
        self._anchor()
        self._snapshot_writer.look()
        self._tell_progress()
        self._sweep_later()

    def _tell_progress(self) -> None:
        """Log why jobs are not handed out, if that lasts."""
        now = self._monotonic()
        if self.is_current:
            self._cut_off_at = now
        elif now - self._cut_off_at > QUIET_SECONDS and now - self._told_at > TELL_SECONDS:
            self._told_at = now
            logger.warning("log of deletes: handing out no jobs yet (%s)", self.state)

    def _recall(self) -> None:
        logger.warning(
            "log of deletes: reading it from the beginning, handing out no jobs "
            "(a job was due before the oldest delete kept here)"
        )
        self._begin_with_nothing()
        self._fences.forget()
        self._tell()
        self._subscription.begin_again()
