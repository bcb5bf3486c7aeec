"""Start to read the log from its beginning and, at the same time, the newest snapshot.

The one that is read first counts. With a snapshot, only the records behind it are read.
"""

from rabbitdelay.core.deletes import doubt
from rabbitdelay.core.deletes.cursor import Following
from rabbitdelay.core.deletes.snapshots import Reading
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.reading_requests import ReadingRequests
from rabbitdelay.engine.delete_log.record_reader import RecordReader
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.deletes.snapshot_reader import SnapshotReader


class LogStart:
    """Starts one reader on each connection, on the transport's thread."""

    def __init__(
        self,
        consumer: Consumer,
        known: KnownDeletes,
        requests: ReadingRequests,
        record_reader: RecordReader,
    ) -> None:
        self._consumer = consumer
        self._known = known
        self._requests = requests
        self._record_reader = record_reader
        self._snapshot_reader: SnapshotReader | None = None

    def start(self) -> None:
        """Read the log, and the snapshot unless the log was read before."""
        self._record_reader.begin()
        if not self._requests.are_settled:
            self._snapshot_reader = SnapshotReader(
                self._consumer,
                self._known.grace_ms,
                self._snapshot_found,
                self._snapshot_read,
                latest_ms=doubt.latest_ms(self._known.now_ms()),
            )
            self._snapshot_reader.start()

    def abandon(self) -> None:
        """Stop reading the snapshot, because the connection is lost."""
        if self._snapshot_reader is not None:
            self._snapshot_reader.abandon()
            self._snapshot_reader = None

    def _snapshot_found(self) -> None:
        """Stop reading the log, because its records up to now are in the snapshot."""
        if not self._requests.are_settled:
            self._record_reader.stop()

    def _snapshot_read(self, reading: Reading | None) -> None:
        if self._requests.are_settled:
            return
        if reading is not None:
            self._record_reader.stop()  # the snapshot replaces the records read in the meantime
            following = Following(reading.tombstones, reading.trailer.anchor)
            following.snapshot_ms = reading.trailer.time_ms
            following.doubted = reading.doubted
            self._known.replace(following)
        self._record_reader.begin()
