"""Whether jobs may be handed out, and the reason if they may not."""

from collections.abc import Callable

from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.deletes.appender import Appender
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes

ALARM = "slow because of the broker's memory or disk alarm"


class LogStatus:
    """The status of one consumer's reading. It changes on the transport's thread."""

    def __init__(self, known: KnownDeletes, appender: Appender) -> None:
        self._known = known
        self._appender = appender
        self._watchers: list[Callable[[], None]] = []
        self.problem: Exception | None = None
        """The error that currently prevents reading; None if there is none."""
        self.failure: Exception | None = None
        """The error that has to be fixed before the log can be read at all."""

    @property
    def text(self) -> str:
        """Description of the status, for errors and log lines."""
        if self._known.is_current:
            return "current"
        if self.problem is not None:
            return f"cut off from the log of deletes: {self.problem}"
        records = self._known.following.read_count
        text = f"reading the log of deletes, {records:,} records so far"
        return f"{text} ({ALARM})" if self._appender.is_blocked else text

    def watch(self, watcher: Callable[[], None]) -> None:
        """Register a callback for a change of `is_current` or of the paused topics.

        It is called on the transport's thread.
        """
        self._watchers.append(watcher)

    def tell(self) -> None:
        """Call the watchers."""
        for watcher in self._watchers:
            watcher()

    def not_current(self, problem: Exception | None) -> None:
        """Note that a delete may be missing, for a reason that is None if it is known already."""
        if problem is not None and self.problem is None:
            logger.warning("log of deletes: cut off, handing out no jobs (%s)", problem)
        self.problem = problem or self.problem
        with self._known.locked() as following:
            following.is_current = False
        self.tell()

    def current(self, *, is_first: bool) -> None:
        """Note that the log was read to its end, perhaps for the first time."""
        was_cut_off = self.problem is not None
        self.problem = self.failure = None
        if was_cut_off or is_first:
            level = logger.warning if was_cut_off else logger.info
            count = self._known.following.tombstones.count
            level("log of deletes: read (%d tombstones)", count)
