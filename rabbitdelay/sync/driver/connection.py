"""A connection of pika whose messages, in both directions, bypass pika's own objects."""

from collections.abc import Callable
from typing import Any

from pika.channel import Channel as PikaChannel

from rabbitdelay.core.amqp.decode import Deliveries, Other, Returned
from rabbitdelay.engine.transport import Channel, OnInbound, Then
from rabbitdelay.sync.driver.channel import ThreadChannel
from rabbitdelay.sync.driver.pika_internals import RawConnection


class ThreadConnection(RawConnection):
    """A SelectConnection that sends encoded frames and decodes messages itself."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - passed on
        self._wrapped: dict[int, ThreadChannel] = {}
        """The channel that was last opened with a number."""
        super().__init__(*args, **options)

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
            elif isinstance(found, Returned):
                self._returned(found)
            else:
                self._on_inbound(found)
        self._on_read()

    def _returned(self, returned: Returned) -> None:
        channel = self._wrapped.get(returned.channel)
        if channel is not None:
            channel.returned(returned)

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Register a callback, given the reason when the broker blocks publishers, then None."""
        self.add_on_connection_blocked_callback(lambda _, frame: blocked(frame.method.reason))
        self.add_on_connection_unblocked_callback(lambda *_: blocked(None))

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel."""

        def wrap(channel: PikaChannel) -> None:
            wrapped = self._wrapped[channel.channel_number] = ThreadChannel(channel)
            opened(wrapped)

        if self.is_open:
            self.channel(on_open_callback=wrap)
