"""The interface of objects that use a consuming connection and are notified of its events."""

from collections.abc import Sequence
from typing import Protocol

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.errors import ConnectionFailed


class ConsumerListener(Protocol):
    """Uses a consuming connection: a dispatcher, a popper, a log reader or a reply queue.

    All methods are called on the transport's thread.
    """

    def connected(self) -> None:
        """Handle a new connection, which has no channels yet."""

    def disconnected(self, error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """Handle the loss of the connection and of these leases."""

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """Handle a channel closed by the broker, and the loss of these leases."""

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Handle these leases, whose deadline has passed and which are being given back."""

    def read(self) -> None:
        """Continue after all deliveries that arrived together have been passed on."""

    def closed(self) -> None:
        """Stop. Called when closing starts, and again when the connection has ended."""


class ConsumerListeners:
    """Several users of one connection, all of which are notified of everything."""

    def __init__(self, *listeners: ConsumerListener) -> None:
        self._listeners = listeners

    def connected(self) -> None:
        """Notify all of a new connection."""
        for listener in self._listeners:
            listener.connected()

    def disconnected(self, error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """Notify all of the loss of the connection."""
        for listener in self._listeners:
            listener.disconnected(error, lost)

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """Notify all of a channel closed by the broker."""
        for listener in self._listeners:
            listener.channel_lost(number, error, lost)

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Notify all of leases whose deadline has passed."""
        for listener in self._listeners:
            listener.expired(expired)

    def read(self) -> None:
        """Continue all listeners after deliveries that arrived together."""
        for listener in self._listeners:
            listener.read()

    def closed(self) -> None:
        """Stop all."""
        for listener in self._listeners:
            listener.closed()
