"""A channel in confirm mode, and the messages in flight on it."""

from enum import Enum, auto
from typing import Protocol

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.core.publish.pending import Pending
from rabbitdelay.core.publish.publish_route import PublishRoute
from rabbitdelay.engine.transport import Channel, Closed, Confirm, Connection
from rabbitdelay.system_time import TimeSource


class ConfirmListener(Protocol):
    """Receives the events of the confirm channels that are in use.

    The publishing side implements it, and cannot be imported here, because it imports this file.
    """

    def channel_opened(self, outgoing: "ConfirmChannel", seconds: float) -> None:
        """Handle a channel that is ready to publish; opening it took `seconds`."""

    def confirmed(self, outgoing: "ConfirmChannel", confirm: Confirm) -> None:
        """Handle an ack or a nack of one or several messages."""

    def returned(self, outgoing: "ConfirmChannel", returned: Returned) -> None:
        """Handle a message that the broker could not route."""

    def channel_closed(self, outgoing: "ConfirmChannel", closed: Closed) -> None:
        """Handle a channel that the broker closed."""


class _State(Enum):
    """The state of a confirm channel, apart from whether the broker has closed it."""

    REQUESTED = auto()
    READY = auto()
    """The broker confirms what is published."""
    DROPPED = auto()
    """Closed by this side, or about to be. What the broker still answers is ignored."""


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
        self._frame_max = connection.frame_max
        self._listener = listener
        self._channel: Channel | None = None
        self._state = _State.REQUESTED

    def open(self) -> None:
        """Request the channel from the broker."""
        self._connection.open_channel(self._opened)

    def drop(self) -> None:
        """Close the channel, even before it is open, and stop calling the listener."""
        self._state = _State.DROPPED
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    @property
    def is_ready(self) -> bool:
        """Whether messages can be published now."""
        channel = self._channel
        return self._state is _State.READY and channel is not None and channel.is_open

    def publish(self, pending: Pending, route: PublishRoute, now: float) -> bytes:
        """Record a message as in flight; return its frames, which the caller sends."""
        pending.sent = True
        pending.sent_at = now
        pending.exchange, pending.lane, pending.safe_at = route.exchange, route.lane, route.safe_at
        self.flight.add(pending)
        return encode.publish(
            self.number, route.exchange, route.key, pending.message, self._frame_max
        )

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        self.number = channel.number
        if self._state is _State.DROPPED:
            channel.close()
            return
        opened_at = self._monotonic()
        channel.on_closed(self._closed)
        channel.confirm(self._confirmed, self._returned, lambda: self._ready(opened_at))

    def _ready(self, opened_at: float) -> None:
        if self._state is not _State.DROPPED:
            self._state = _State.READY
            self._listener.channel_opened(self, self._monotonic() - opened_at)

    def _confirmed(self, confirm: Confirm) -> None:
        if self._state is not _State.DROPPED:
            self._listener.confirmed(self, confirm)

    def _returned(self, returned: Returned) -> None:
        if self._state is not _State.DROPPED:
            self._listener.returned(self, returned)

    def _closed(self, _channel: Channel, closed: Closed) -> None:
        if self._state is not _State.DROPPED:
            self._listener.channel_closed(self, closed)
