"""A connection of pika whose deliveries and published frames bypass pika's own objects."""

from collections.abc import Callable

from rabbitdelay.core.amqp.decode import Deliveries, Other
from rabbitdelay.engine.transport import Channel, OnInbound, Then
from rabbitdelay.sync.driver.channel import ThreadChannel
from rabbitdelay.sync.driver.pika_internals import RawConnection


class ThreadConnection(RawConnection):
    """A SelectConnection that sends encoded frames and decodes deliveries itself."""

    @property
    def frame_max(self) -> int:
        """The maximum frame size negotiated with the broker, in bytes."""
        assert self.params is not None
        return self.params.frame_max

    @property
    def broker_version(self) -> str:
        """The version of RabbitMQ, such as `4.3.6`; empty if the broker does not report one."""
        return str((self.server_properties or {}).get("version", ""))

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Pass on each message; call `on_read` after all messages that arrived together."""
        self._deliveries = Deliveries()
        self._on_inbound = on_inbound
        self._on_read = on_read
        self.read_bytes(self._read)

    def _read(self, data: bytes) -> None:
        for found in self._deliveries.feed(data):
            if isinstance(found, Other):
                self.pass_on(found.frame)
            else:
                self._on_inbound(found)
        self._on_read()

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Register a callback, given the reason when the broker blocks publishers, then None."""
        self.add_on_connection_blocked_callback(lambda _, frame: blocked(frame.method.reason))
        self.add_on_connection_unblocked_callback(lambda *_: blocked(None))

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel."""
        if self.is_open:
            self.channel(on_open_callback=lambda channel: opened(ThreadChannel(channel)))
