"""A connection of pika's: deliveries are read, and frames written, past its own objects."""

from collections.abc import Callable

import pika

from rabbitdelay.core.amqp.decode import Deliveries, Other
from rabbitdelay.engine.transport import Channel, OnInbound, Then
from rabbitdelay.sync.channel import ThreadChannel

RECEIVE_BYTES = 64 * 1024


class ThreadLink(pika.SelectConnection):
    """A SelectConnection that sends frames and reads deliveries past pika's own objects."""

    _deliveries: Deliveries | None = None

    @property
    def frame_max(self) -> int:
        """The largest frame, as agreed with the broker."""
        assert self.params is not None
        return self.params.frame_max

    @property
    def broker_version(self) -> str:
        """The version of RabbitMQ."""
        return str((self.server_properties or {}).get("version", ""))

    def send_frames(self, data: bytes) -> None:
        """Send whole frames. pika's channels keep no count of what is sent on them."""
        self._adapter_emit_data(data)

    def cut(self) -> None:
        """Close the socket without waiting for the broker."""
        if self._transport is not None:
            self._transport.abort()

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Hand over messages; `on_read` is called after all that came at once."""
        self._deliveries = Deliveries()
        # pika reads 4 KiB at a time: eight small jobs, and the threads are woken for each piece.
        setattr(self._transport, "_MAX_RECV_BYTES", RECEIVE_BYTES)  # noqa: B010 - pika's own
        self._on_inbound = on_inbound
        self._on_read = on_read

    def _on_data_available(self, data_in: bytes) -> None:
        if self._deliveries is None:
            super()._on_data_available(data_in)
            return
        self.bytes_received += len(data_in)  # else its heartbeat takes a busy broker for dead
        for found in self._deliveries.feed(data_in):
            if isinstance(found, Other):
                super()._on_data_available(found.frame)
            else:
                self._on_inbound(found)
        self._on_read()

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Call this when the broker blocks who publishes, and when it does no more."""
        self.add_on_connection_blocked_callback(lambda _, frame: blocked(frame.method.reason))
        self.add_on_connection_unblocked_callback(lambda *_: blocked(None))

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel."""
        if self.is_open:
            self.channel(on_open_callback=lambda channel: opened(ThreadChannel(channel)))
