"""Keep a connection open: try the addresses in turn, and reconnect with backoff when it is lost."""

import logging
import random
from collections.abc import Sequence
from contextlib import suppress

from rabbitdelay.address import Address
from rabbitdelay.core.publish import backoff
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.flow import Bell, Flow, Wait
from rabbitdelay.engine.transport import Connection, Transport, TransportOwner, nothing
from rabbitdelay.errors import BrokerUnreachable, ClientClosed, ConnectionFailed
from rabbitdelay.system_time import TimeSource

logger = logging.getLogger("rabbitdelay")


class Connector:
    """Connects to one address after the other, with backoff and jitter."""

    def __init__(
        self, transport: Transport, addresses: Sequence[Address], owner: TransportOwner
    ) -> None:
        for address in addresses:
            address.tls_context()  # raises for a bad TLS setting before anything is started
        self.transport = transport
        self.call = transport.call
        """Schedules a function on the transport's thread; returns False if that has ended. From any
        thread."""
        self.monotonic = transport.monotonic
        """Returns the seconds on the transport's monotonic clock. From any thread."""
        self.call_later = transport.call_later
        """Schedules a function after a delay; returns a handle for the transport's `cancel`. On the
        transport's thread."""
        self.call_sometime = transport.call_sometime
        """The same for a function that may be called late."""
        self.connection: Connection | None = None
        self._addresses = addresses
        self._owner = owner
        self._attempts = 0
        self._failures = 0
        self._opened_once = False
        self._closing = False

    @property
    def address(self) -> Address:
        """The address of the current attempt."""
        return self._addresses[self._attempts % len(self._addresses)]

    # From any thread

    def start(self) -> None:
        """Start the first attempt."""
        self.transport.start(self._owner, self._connect)

    @property
    def has_ended(self) -> bool:
        """Whether the transport has ended, so that nothing more will happen."""
        return self.transport.ended.done()

    def until_ended(self, flush_seconds: float) -> Flow[None]:
        """Wait while the connection closes, except on the transport's own thread.

        Return at once when the transport cannot end any more, as on an event loop that was closed.
        """
        if self.transport.may_wait() and self.transport.call(nothing):
            with suppress(TimeoutError):
                yield Wait(self.transport.ended, flush_seconds + process_lifetime.CLOSE_SECONDS)

    # On the transport's thread

    @property
    def open_connection(self) -> Connection | None:
        """The connection if it can be used, else None."""
        connection = self.connection
        return connection if connection is not None and connection.is_open else None

    def send(self, data: bytes) -> None:
        """Send frames now; do nothing without a connection."""
        connection = self.open_connection
        if connection is not None:
            connection.send_frames(data)

    def close(self, patience_seconds: float = process_lifetime.CLOSE_SECONDS) -> None:
        """Close the connection, or the attempt to connect, and end the transport.

        A connection whose closing handshake takes longer than `patience_seconds` is dropped.
        """
        self._closing = True
        self.transport.call_later(patience_seconds, self.transport.cut)
        self.transport.stop()

    @property
    def is_closing(self) -> bool:
        """Whether the connection is being closed on purpose."""
        return self._closing

    def _connect(self) -> None:
        if self._closing:
            self.transport.stop()
        else:
            self.transport.connect(self.address, self._opened, self._failed)

    def _opened(self, connection: Connection) -> None:
        level = logging.WARNING if self._failures and self._opened_once else logging.INFO
        logger.log(level, "%s: connected", self.address)
        self._failures = 0
        self._opened_once = True
        self.connection = connection
        self._owner.connection_opened(connection)

    def _failed(self, error: ConnectionFailed) -> None:
        self.connection = None
        if self._closing:
            self.transport.stop()
            return
        self._attempts += 1
        if self._has_untried_address(error):
            logger.info("%s; trying the next address", error)
            self.transport.call_later(0, self._connect)
            return
        wait = backoff.seconds(self._failures, random.random())  # noqa: S311 - jitter
        self._failures += 1
        level = logging.WARNING if self._failures == 1 and self._opened_once else logging.INFO
        logger.log(level, "%s (next attempt in %.1f s)", error, wait)
        self._owner.connection_failed(error)
        self.transport.call_later(wait, self._connect)

    def _has_untried_address(self, error: ConnectionFailed) -> bool:
        """Whether an address has not been tried yet: connecting fails once all have been tried."""
        is_first_round = not self._opened_once and self._attempts < len(self._addresses)
        return is_first_round and isinstance(error, BrokerUnreachable)


class FirstConnection:
    """The state of a client's first connection, for callers that wait for it."""

    def __init__(self, monotonic: TimeSource) -> None:
        self._monotonic = monotonic
        self._changed = Bell()
        self._has_ended = False
        self.made = False
        self.error: ConnectionFailed | None = None
        """The error of the last attempt or lost connection; None while connected."""

    def opened(self) -> bool:
        """Note a connection; return whether it replaces one that was lost."""
        came_back = self.made and self.error is not None
        self.made, self.error = True, None
        self._changed.ring()
        return came_back

    def failed(self, error: ConnectionFailed) -> None:
        """Note a failed attempt or a lost connection."""
        self.error = error
        self._changed.ring()

    def ended(self) -> None:
        """Note that no further attempt will be made."""
        self._has_ended = True
        self._changed.ring()

    def wait(self, timeout: float) -> Flow[None]:
        """Wait for the first connection; raise the error that prevents it.

        At least one attempt is awaited, which has a timeout of its own.
        """
        deadline = self._monotonic() + timeout
        while True:
            changed = self._changed.next()
            if self.made:
                return
            if self._has_ended:
                raise self.error or ClientClosed("the client was closed")
            rest = deadline - self._monotonic()
            hopeless = not isinstance(self.error, BrokerUnreachable)
            if self.error is not None and (hopeless or rest <= 0):
                raise self.error
            try:
                yield Wait(changed, max(rest, 0) if self.error is not None else None)
            except TimeoutError:
                continue
