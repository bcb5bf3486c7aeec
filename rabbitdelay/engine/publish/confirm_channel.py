"""A channel in confirm mode, and the messages in flight on it."""

from typing import Protocol

from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.engine.transport import Channel, Closed, Confirm, Connection
from rabbitdelay.system_time import TimeSource


class ConfirmListener(Protocol):
    """Receives the events of the confirm channels that are in use.

    The publisher implements it, and cannot be imported here, because it imports this file.
    """

    def channel_opened(self, outgoing: "ConfirmChannel", seconds: float) -> None:
        """Handle a channel that is ready to publish; opening it took `seconds`."""

    def confirmed(self, outgoing: "ConfirmChannel", confirm: Confirm) -> None:
        """Handle an ack or a nack of one or several messages."""

    def returned(self, outgoing: "ConfirmChannel", returned: Returned) -> None:
        """Handle a message that the broker could not route."""

    def channel_closed(self, outgoing: "ConfirmChannel", closed: Closed) -> None:
        """Handle a channel that the broker closed."""


class ConfirmChannel:
    """Publishes on one channel in confirm mode; on the transport's thread."""

    def __init__(
        self,
        connection: Connection,
        lane: str,
        flight: Flight,
        listener: ConfirmListener,
        monotonic: TimeSource,
    ) -> None:
        self._monotonic = monotonic
        self.lane = lane
        self.flight = flight
        self.asked_at = self._monotonic()
        """Monotonic time at which the channel was requested."""
        self.number = 0
        """Number of the channel; 0 until it is open."""
        self._connection = connection
        self._listener = listener
        self._channel: Channel | None = None
        self._is_ready = False
        self._is_dropped = False

    def open(self) -> None:
        """Request the channel from the broker."""
        self._connection.open_channel(self._opened)

    def drop(self) -> None:
        """Close the channel, even before it is open, and stop calling the listener."""
        self._is_dropped = True
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    @property
    def is_ready(self) -> bool:
        """Whether messages can be published now."""
        return self._is_ready and self._channel is not None and self._channel.is_open

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        self.number = channel.number
        if self._is_dropped:
            channel.close()
            return
        opened_at = self._monotonic()
        channel.on_closed(self._closed)
        channel.confirm(self._confirmed, self._returned, lambda: self._ready(opened_at))

    def _ready(self, opened_at: float) -> None:
        self._is_ready = True
        if not self._is_dropped:
            self._listener.channel_opened(self, self._monotonic() - opened_at)

    def _confirmed(self, confirm: Confirm) -> None:
        if not self._is_dropped:
            self._listener.confirmed(self, confirm)

    def _returned(self, returned: Returned) -> None:
        if not self._is_dropped:
            self._listener.returned(self, returned)

    def _closed(self, _channel: Channel, closed: Closed) -> None:
        if not self._is_dropped:
            self._listener.channel_closed(self, closed)
