"""Send the buffered acks and nacks of a connection, on the transport's thread."""

from rabbitdelay.core.settle.acknowledgements import MAX_WAIT_SECONDS
from rabbitdelay.engine.acks.ack_buffer import AckBuffer
from rabbitdelay.engine.connection import Connector


class AckSender:
    """Sends what is in an ack buffer."""

    def __init__(self, acks: AckBuffer, connector: Connector) -> None:
        self._acks = acks
        self._connector = connector
        self._is_flush_due = False

    def flush(self, *, everything: bool = False) -> None:
        """Send buffered frames; with `everything`, also acks that wait for older ones."""
        data = self._acks.take(self._connector.monotonic(), everything=everything)
        if data:
            self._connector.send(data)
        if self._acks.is_any_waiting and not self._is_flush_due:
            self._is_flush_due = True
            self._connector.call_later(MAX_WAIT_SECONDS, self._flush_waiting)

    def _flush_waiting(self) -> None:
        self._is_flush_due = False
        self.flush()
