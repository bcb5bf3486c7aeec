"""Read the log of deletes of a consuming connection, and say when no job may be handed out.

Until the log has been read to its end, and whenever the connection to it is lost, the reader is not
current and no job is handed out.
"""

from collections.abc import Sequence
from functools import partial

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.log_start import LogStart
from rabbitdelay.engine.delete_log.log_status import LogStatus
from rabbitdelay.engine.delete_log.log_upkeep import LogUpkeep
from rabbitdelay.engine.delete_log.reading_requests import Demand, ReadingRequests
from rabbitdelay.engine.delete_log.record_reader import RecordReader
from rabbitdelay.engine.deletes.appender import Appender
from rabbitdelay.engine.deletes.delete_check import DeleteCheck
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.deletes.snapshot_writer import SnapshotWriter
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import ConnectionFailed, NamespaceMissing


class LogReader:
    """The parts that read the log for one consumer, put together.

    Jobs are checked with `check`; `known` and `status` say what is known, and why not more.
    """

    def __init__(
        self,
        consumer: Consumer,
        known: KnownDeletes,
        appender: Appender,
        *,
        is_wanted: bool = True,
    ) -> None:
        self._consumer = consumer
        self.known = known
        self.status = LogStatus(known, appender)
        self.check = DeleteCheck(
            known, consumer.monotonic, renew=self._renew_soon, recall=self._recall_soon
        )
        self._requests = requests = ReadingRequests(Demand.READ if is_wanted else Demand.NONE)
        self._record_reader = RecordReader(
            consumer, known, appender, self.status, requests, caught_up=self._caught_up
        )
        self._snapshot_writer = SnapshotWriter(consumer, known, appender)
        self._start = LogStart(consumer, known, requests, self._record_reader)
        self._upkeep = LogUpkeep(
            consumer,
            known,
            self.status,
            requests,
            fences=self._record_reader.fences,
            snapshot_writer=self._snapshot_writer,
        )

    # From any thread

    @property
    def is_current(self) -> bool:
        """Whether the log was read to its end and is, as far as is known, still being read."""
        return self.known.is_current

    @property
    def has_caught_up(self) -> bool:
        """Whether the reader was current once, or can never be."""
        return self._requests.are_settled

    def begin(self) -> Future[None]:
        """Start to read the log, for a client that has not handed out jobs so far.

        The future is done when the log was read to its end or cannot be read, with the reason in
        `status.failure`. A missing namespace is looked for again.
        """
        read: Future[None] = Future()
        read.set_running_or_notify_cancel()
        if not self._consumer.call(partial(self._begin, read)):
            read.set_result(None)
        return read

    def _recall_soon(self) -> None:
        self._consumer.call(self._record_reader.recall)

    def _renew_soon(self) -> None:
        self._consumer.call(self._renew)

    # Called by the consumer

    def connected(self) -> None:
        """Start to read the log."""
        if self._requests.demand is Demand.NONE:
            return
        self._upkeep.start()
        self._snapshot_writer.connected()
        self._start.start()

    def disconnected(self, _error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """Become not current."""
        self._start.abandon()
        self._snapshot_writer.disconnected()
        self._record_reader.connection_lost()

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """Handle the loss of a channel, if it is one of the reader's."""
        self._snapshot_writer.channel_lost(number, error)
        self._record_reader.channel_lost(number, error)

    def expired(self, _expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing, because the reader has no leases."""

    def read(self) -> None:
        """Acknowledge what was read."""
        self._record_reader.acknowledge()

    def closed(self) -> None:
        """Stop reading. A timer of the event loop may still fire, without effect."""
        self._record_reader.fences.forget()
        self._requests.close()

    # On the transport's thread

    def _begin(self, read: Future[None]) -> None:
        requests = self._requests
        is_missing = isinstance(self.status.failure, NamespaceMissing)
        if requests.are_closed or (requests.are_settled and not is_missing):
            read.set_result(None)
            return
        requests.add(read)
        if requests.demand is Demand.NONE:
            requests.demand = Demand.READ
            if self._consumer.first.made and self._consumer.first.error is None:
                self.connected()
        elif is_missing:
            requests.demand = Demand.READ_ANEW  # an answer in flight is older than this call
            self._record_reader.look_again()

    def _renew(self) -> None:
        self.check.renewal_began()
        if not self._requests.are_closed:
            self._record_reader.fences.refresh()

    def _caught_up(self) -> None:
        self._upkeep.caught_up()
