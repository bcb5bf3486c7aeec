"""Read the records of the log of deletes, and decide what an interruption of it means.

The reader is current only while the log is consumed and its fences are read back.
"""

from collections.abc import Sequence

from rabbitdelay.core.amqp import encode, reply_codes
from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.cursor import Offset, Read
from rabbitdelay.core.deletes.records import RecordTooNew
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import RETRY_SECONDS, Subscription
from rabbitdelay.engine.delete_log.fence import FenceWriter
from rabbitdelay.engine.delete_log.log_rewriter import LogRewriter
from rabbitdelay.engine.delete_log.log_status import LogStatus
from rabbitdelay.engine.delete_log.reading_requests import Demand, ReadingRequests
from rabbitdelay.engine.deletes.appender import Appender
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.transport import Then
from rabbitdelay.errors import CutOff, NamespaceMissing, PermissionRefused

PREFETCH = 2_000
OFFSET = "x-stream-offset"
NAMESPACE_SECONDS = 0.5
"""Interval at which a reader looks for a namespace that does not exist yet."""


class RecordReader:
    """Consumes the log for one consumer, on the transport's thread."""

    def __init__(
        self,
        consumer: Consumer,
        known: KnownDeletes,
        appender: Appender,
        status: LogStatus,
        requests: ReadingRequests,
        *,
        caught_up: Then,
    ) -> None:
        self._consumer = consumer
        self._known = known
        self._status = status
        self._requests = requests
        self._caught_up = caught_up
        """Called whenever the log was read to its end."""
        self._log = consumer.topology.log()
        self._subscription = Subscription(
            consumer,
            self._log.queue.name,
            (self._log,),
            PREFETCH,
            self,
            arguments=self._where_to_read,
        )
        self.fences = FenceWriter(consumer, known, appender, self._subscription, self)
        self._rewriter = LogRewriter(consumer, known, appender, self._subscription)
        self._unacked: tuple[int, int] | None = None
        """The channel and the delivery tag of the last record, unless it is acknowledged."""
        self._skipped_count = 0

    # Called by the reader

    def begin(self) -> None:
        """Consume the log, unless it is consumed already."""
        self._subscription.begin()

    def look_again(self) -> None:
        """Look for a missing namespace now, unless a look is in flight."""
        if self._subscription.is_idle:
            self._requests.demand = Demand.READ
            self._subscription.begin()

    def stop(self) -> None:
        """Stop consuming the log, until `begin` is called."""
        self.fences.forget()
        self._subscription.stop()

    def connection_lost(self) -> None:
        """Become not current."""
        self._subscription.connection_lost()
        self._cut_off()

    def channel_lost(self, number: int, error: Exception) -> None:
        """Handle the loss of a channel, if it is the one of the log."""
        if self._subscription.channel_lost(number, error):
            self._cut_off(error)

    def acknowledge(self) -> None:
        """Acknowledge what was read, because a stream sends only as much as may be unacked."""
        if self._unacked is not None:
            channel, tag = self._unacked
            self._unacked = None
            if self._subscription.is_on(channel):  # an ack on a closed channel ends the connection
                self._consumer.send(encode.ack(channel, tag, multiple=True))

    def recall(self) -> None:
        """Read the whole log again, and keep every record of it."""
        logger.warning(
            "log of deletes: reading it from the beginning, handing out no jobs "
            "(a job was due before the oldest delete kept here)"
        )
        self._known.begin_with_nothing(self._consumer.monotonic())
        self.fences.forget()
        self._status.tell()
        self._subscription.begin_again()

    # Called by the subscription

    def _where_to_read(self) -> dict[str, Offset]:
        self._unacked = None  # its channel is closed, and the new one may have the same number
        with self._known.locked() as following:
            return {OFFSET: following.begin()}

    def consuming(self) -> None:
        """Write a fence. Once it is read, every record before it has been read."""
        self._rewriter.write_if_requested()
        self.fences.begin()

    def interrupted(self, _lost: Sequence[Lease]) -> None:
        """Handle the deletion of the stream.

        It is declared again, and the known records are written to it.
        """
        self._cut_off(CutOff(f"stream {self._log.queue.name} was deleted"))
        self._rewriter.other_log()

    def failed(self, error: Exception) -> None:
        """Retry after an error of a first attempt; report an error that has to be fixed."""
        self._status.failure = None if reply_codes.is_passing(str(error)) else error
        self._cut_off(error)
        if self._requests.demand is Demand.READ_ANEW:
            self.look_again()
            return
        if self._status.failure is not None:
            self._requests.settle()
        is_missing = isinstance(error, NamespaceMissing)
        pause = NAMESPACE_SECONDS if is_missing else RETRY_SECONDS
        self._consumer.call_later(pause, self._subscription.begin)

    def delivered(self, delivery: Delivery) -> None:
        """Read a record."""
        self._unacked = (delivery.channel, delivery.tag)
        message = delivery.message
        position = message.headers.get(OFFSET, 0)
        try:
            read = self._known.read(position, message.body, self._consumer.monotonic())
        except RecordTooNew as error:
            self._give_up(error)
            return
        if read is Read.CAUGHT_UP:
            self._current()
        elif read is Read.SWITCHED:
            self._status.tell()
        elif read is Read.OTHER_LOG:
            self._begin_anew()
        elif read is Read.SKIPPED:
            self._warn_of_garbage(position, "not a record")
        elif read is Read.DOUBTED:
            self._warn_of_garbage(position, "dated over 7 days ahead of this clock")

    # Called by the fences

    def fence_failed(self, error: Exception) -> None:
        """Note that a fence could not be written; another follows, unless none was ever written."""
        if self._requests.are_closed:
            return
        if isinstance(error, PermissionRefused) and not self._requests.are_settled:
            self._subscription.stop()
            self.failed(error)
        else:
            self._status.not_current(CutOff(f"writing a fence failed: {error}"))

    def fence_missed(self) -> None:
        """Note that a fence was not read back in time."""
        self._status.not_current(CutOff("a record written to it was not read back in time"))

    def answered(self, nonce: str) -> None:
        """Accept a round trip instead of a fence, while an alarm blocks publishers."""
        with self._known.locked() as following:
            if not following.proof.came_back(nonce, self._consumer.monotonic()):
                return
            following.is_current = True
        self._current()

    def read_again(self) -> None:
        """Subscribe to the log again, because a fence was written but not read."""
        if self._known.following.is_matching:
            self._begin_anew()
        else:
            self._cut_off()
            self._subscription.begin_again()

    # What follows

    def _current(self) -> None:
        """Handle the end of the log: jobs may be handed out."""
        self.fences.came_back()
        self._status.current(is_first=not self._requests.are_settled)
        self._requests.settle()
        self._status.tell()
        self._caught_up()

    def _cut_off(self, problem: Exception | None = None) -> None:
        """Become not current until the log is read again."""
        self.fences.forget()
        self._unacked = None
        with self._known.locked() as following:
            following.cut_off()
        self._status.not_current(problem)

    def _begin_anew(self) -> None:
        """Read a new log from its beginning, and write the known records to it."""
        logger.warning(
            "log of deletes: replaced, writing the known records to the new one (%s)",
            self._log.queue.name,
        )
        self._cut_off()
        self._rewriter.other_log()
        self._subscription.begin_again()

    def _give_up(self, error: Exception) -> None:
        """Stop reading at a record of a later version, because it may be a delete."""
        self._status.failure = error
        self._cut_off(error)
        self._subscription.end()
        self._requests.settle()

    def _warn_of_garbage(self, position: int, reason: str) -> None:
        """Warn of the 1st, 2nd, 4th, 8th … skipped record, because there may be very many."""
        self._skipped_count += 1
        if self._skipped_count.bit_count() == 1:
            text = "log of deletes: record skipped (%s; position %s of %s, %d so far)"
            logger.warning(text, reason, position, self._log.queue.name, self._skipped_count)
