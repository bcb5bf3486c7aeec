"""Tasks done once a second while the log of deletes is read."""

from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.fence import FenceWriter
from rabbitdelay.engine.delete_log.log_status import LogStatus
from rabbitdelay.engine.delete_log.reading_requests import ReadingRequests
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.deletes.snapshot_writer import SnapshotWriter
from rabbitdelay.errors import NamespaceMissing

SWEEP_SECONDS = 1.0
ANCHOR_SECONDS = 30.0
"""Interval of the fences in a log that is read and has no newer fence. After a reconnect, reading
resumes at the last fence."""
QUIET_SECONDS = 2.0
TELL_SECONDS = 5.0
"""Interval of the log lines about a reading that takes longer than QUIET_SECONDS."""


class LogUpkeep:
    """Forgets expired tombstones, writes anchors, requests snapshots and logs slow readings.

    Runs on the transport's thread.
    """

    def __init__(
        self,
        consumer: Consumer,
        known: KnownDeletes,
        status: LogStatus,
        requests: ReadingRequests,
        *,
        fences: FenceWriter,
        snapshot_writer: SnapshotWriter,
    ) -> None:
        self._consumer = consumer
        self._known = known
        self._status = status
        self._requests = requests
        self._fences = fences
        self._snapshot_writer = snapshot_writer
        self._anchored_at = consumer.monotonic()
        self._cut_off_at = 0.0
        """Monotonic time since which no jobs are handed out."""
        self._told_at = 0.0
        self._is_set = False

    def start(self) -> None:
        """Start, with a new connection."""
        self._cut_off_at = self._consumer.monotonic()
        self._set_timer()

    def caught_up(self) -> None:
        """Handle the end of a reading, which was a fence of this consumer."""
        self._anchored_at = self._consumer.monotonic()
        self._snapshot_writer.look()

    def _set_timer(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._consumer.call_sometime(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._is_set = False
        if self._requests.are_closed:
            return
        now = self._consumer.monotonic()
        self._known.forget_some(now)
        self._anchor(now)
        self._snapshot_writer.look()
        self._tell_progress(now)
        self._set_timer()

    def _anchor(self, now: float) -> None:
        """Write a fence to a log that others write to, so that reading can resume there."""
        if self._known.following.since_anchor == 0:
            self._anchored_at = now
        elif self._known.is_current and now - self._anchored_at >= ANCHOR_SECONDS:
            self._fences.refresh()

    def _tell_progress(self, now: float) -> None:
        """Log why jobs are not handed out, if that lasts.

        A missing namespace was logged once, and may be missing for long: its first put creates it.
        """
        if self._known.is_current or isinstance(self._status.failure, NamespaceMissing):
            self._cut_off_at = now
        elif now - self._cut_off_at > QUIET_SECONDS and now - self._told_at > TELL_SECONDS:
            self._told_at = now
            logger.warning("log of deletes: handing out no jobs yet (%s)", self._status.text)
