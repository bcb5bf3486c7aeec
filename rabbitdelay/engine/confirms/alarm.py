"""The broker's alarm of memory or disk, which blocks publishers."""

from rabbitdelay.engine.confirms.stall_detector import StallDetector
from rabbitdelay.engine.connection import Connector, logger
from rabbitdelay.engine.transport import Then


class Alarm:
    """Whether the broker blocks publishers; changes on the transport's thread."""

    def __init__(self, connector: Connector, detector: StallDetector, changed: Then) -> None:
        self._connector = connector
        self._detector = detector
        self._changed = changed
        self.reason: str | None = None
        """The reason why the broker blocks publishers; None if it does not."""

    def set(self, reason: str | None) -> None:
        """Handle a message of the broker; a reason of None ends the alarm."""
        if reason:
            logger.warning("publisher: blocked by the broker (%s)", reason)
        else:
            logger.warning("publisher: unblocked by the broker")
        self.reason = reason
        self._detector.resume(self._connector.monotonic())
        if reason and self._connector.is_closing:
            # A broker with an alarm does not read the closing handshake.
            self._connector.transport.cut()
        self._changed()

    def forget(self) -> None:
        """Forget the alarm, because the connection was lost."""
        self.reason = None
