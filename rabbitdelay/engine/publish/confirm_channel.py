"""A confirm channel: a channel that messages are published on, and what is in flight there."""

import time
from typing import Protocol

from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.engine.transport import Channel, Closed, Confirm, Connection, Returned


class ConfirmListener(Protocol):
    """Is told what happens on outgoing channels that are in use."""

    def channel_opened(self, outgoing: "ConfirmChannel", seconds: float) -> None:
        """Messages can be sent; opening took so long."""

    def confirmed(self, outgoing: "ConfirmChannel", confirm: Confirm) -> None:
        """The broker has some messages, or refuses them."""

    def returned(self, outgoing: "ConfirmChannel", returned: Returned) -> None:
        """The broker could not route a message."""

    def channel_closed(self, outgoing: "ConfirmChannel", closed: Closed) -> None:
        """The broker closed the channel."""


class ConfirmChannel:
    """One channel in confirm mode; on the transport's thread."""

    def __init__(
        self, connection: Connection, lane: str, flight: Flight, listener: ConfirmListener
    ) -> None:
        self.lane = lane
        self.flight = flight
        self.asked_at = time.monotonic()
        """When the broker was asked for the channel."""
        self.number = 0
        """The number of the channel, once it is opened."""
        self._connection = connection
        self._listener = listener
        self._channel: Channel | None = None
        self._is_ready = False
        self._is_dropped = False

    def open(self) -> None:
        """Ask the broker for the channel."""
        self._connection.open_channel(self._opened)

    def drop(self) -> None:
        """Close the channel, also one that is yet to be opened; the listener hears no more."""
        self._is_dropped = True
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    @property
    def is_ready(self) -> bool:
        """Whether messages can be sent now."""
        return self._is_ready and self._channel is not None and self._channel.is_open

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        self.number = channel.number
        if self._is_dropped:
            channel.close()
            return
        opened_at = time.monotonic()
        channel.on_closed(self._closed)
        channel.confirm(self._confirmed, self._returned, lambda: self._ready(opened_at))

    def _ready(self, opened_at: float) -> None:
        self._is_ready = True
        if not self._is_dropped:
            self._listener.channel_opened(self, time.monotonic() - opened_at)

    def _confirmed(self, confirm: Confirm) -> None:
        if not self._is_dropped:
            self._listener.confirmed(self, confirm)

    def _returned(self, returned: Returned) -> None:
        if not self._is_dropped:
            self._listener.returned(self, returned)

    def _closed(self, _channel: Channel, closed: Closed) -> None:
        if not self._is_dropped:
            self._listener.channel_closed(self, closed)
