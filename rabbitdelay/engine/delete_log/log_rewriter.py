"""Write the known records to a log that replaced the one they were read from."""

import concurrent.futures

from rabbitdelay.core.deletes import records, snapshots
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import Subscription
from rabbitdelay.engine.deletes.appender import Appender
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes


class LogRewriter:
    """Writes all that is known, because the records of a deleted log are still valid."""

    def __init__(
        self,
        consumer: Consumer,
        known: KnownDeletes,
        appender: Appender,
        subscription: Subscription,
    ) -> None:
        self._consumer = consumer
        self._known = known
        self._appender = appender
        self._subscription = subscription
        self._log = consumer.topology.log()
        self._is_requested = False
        """Whether all is to be written as soon as the new log is consumed."""

    def other_log(self) -> None:
        """Handle the replacement of the log, by another one or by none so far."""
        self._is_requested = True
        with self._known.locked() as following:
            following.start_over()

    def write_if_requested(self) -> None:
        """Write all records, now that the new log exists."""
        if not self._is_requested:
            return
        self._is_requested = False
        for body in self._bodies():
            self._appender.append(self._log, body).add_done_callback(self._wrote)

    def _bodies(self) -> list[bytes]:
        with self._known.locked() as following:
            known = following.tombstones
            bodies = [records.encode(record) for record in known.records(for_another_log=True)]
            bodies += snapshots.pieces_of(known) if known.table.count else ()
            bodies += snapshots.doubted_again(following.doubted)
        return bodies

    def _wrote(self, done: concurrent.futures.Future[None]) -> None:
        """Start again if a record was not written, because other consumers have only the log."""
        if done.exception() is not None:
            self._consumer.call(self._write_again)

    def _write_again(self) -> None:
        if not self._is_requested and not self._consumer.has_ended:
            self._is_requested = True
            self._subscription.begin_again()
