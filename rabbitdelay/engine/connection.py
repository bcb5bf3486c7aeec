"""The connector: keeps a connection open, and comes back when it is lost."""

import logging
import random
import time
from collections.abc import Sequence
from contextlib import suppress

from rabbitdelay.address import Address
from rabbitdelay.core.publish import backoff
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.flow import Bell, Flow, Wait
from rabbitdelay.engine.transport import Link, Owner, Then, Wire, nothing
from rabbitdelay.errors import BrokerUnreachable, ClientClosed, ConnectionFailed

logger = logging.getLogger("rabbitdelay")


class Connector:
    """Tries one address after the other, with backoff and jitter."""

    def __init__(self, wire: Wire, addresses: Sequence[Address], owner: Owner) -> None:
        for address in addresses:
            address.tls_context()  # a bad one is an error of the caller, at once
        self.wire = wire
        self.link: Link | None = None
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
        """Begin with the first attempt."""
        self.wire.start(self._owner, self._connect)

    def call(self, function: Then) -> bool:
        """Run a function on the wire's thread; False when that has ended."""
        return self.wire.call(function)

    @property
    def has_ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self.wire.ended.done()

    def until_ended(self, flush_seconds: float) -> Flow[None]:
        """Wait until it has ended, while it closes; not on the wire's own thread.

        Nor when there is nobody to end it: an event loop that is closed runs nothing any more.
        """
        if self.wire.may_wait() and self.wire.call(nothing):
            with suppress(TimeoutError):
                yield Wait(self.wire.ended, flush_seconds + process_lifetime.CLOSE_SECONDS)

    # On the wire's thread

    def call_later(self, seconds: float, function: Then) -> object:
        """Run a function after a while; return what cancels it."""
        return self.wire.call_later(seconds, function)

    def close(self, patience_seconds: float = process_lifetime.CLOSE_SECONDS) -> None:
        """Close the connection, also one that is being made, and end.

        A connection whose end the broker does not confirm in time is cut.
        """
        self._closing = True
        self.wire.call_later(patience_seconds, self.wire.cut)
        self.wire.stop()

    @property
    def is_closing(self) -> bool:
        """Whether it is being closed on purpose."""
        return self._closing

    def _connect(self) -> None:
        if self._closing:
            self.wire.stop()
        else:
            self.wire.connect(self.address, self._opened, self._failed)

    def _opened(self, link: Link) -> None:
        level = logging.WARNING if self._failures and self._opened_once else logging.INFO
        logger.log(level, "%s: connected", self.address)
        self._failures = 0
        self._opened_once = True
        self.link = link
        self._owner.connection_opened(link)

    def _failed(self, error: ConnectionFailed) -> None:
        self.link = None
        if self._closing:
            self.wire.stop()
            return
        pause = backoff.seconds(self._failures, random.random())  # noqa: S311 - jitter
        self._attempts += 1
        self._failures += 1
        level = logging.WARNING if self._failures == 1 and self._opened_once else logging.INFO
        logger.log(level, "%s; next attempt in %.1f s", error, pause)
        self._owner.connection_failed(error)
        self.wire.call_later(pause, self._connect)


class FirstConnection:
    """Whether there ever was a connection, for those who wait for the first one."""

    def __init__(self) -> None:
        self._changed = Bell()
        self._has_ended = False
        self.made = False
        self.error: ConnectionFailed | None = None
        """What is in the way now; None when connected."""

    def opened(self) -> bool:
        """There is a connection; say whether it is one that came back."""
        came_back = self.made and self.error is not None
        self.made, self.error = True, None
        self._changed.ring()
        return came_back

    def failed(self, error: ConnectionFailed) -> None:
        """An attempt failed, or the connection was lost."""
        self.error = error
        self._changed.ring()

    def ended(self) -> None:
        """There will be none."""
        self._has_ended = True
        self._changed.ring()

    def wait(self, timeout: float) -> Flow[None]:
        """Wait for the first connection; raise what stands in its way.

        That is at least one attempt, which has a timeout of its own.
        """
        deadline = time.monotonic() + timeout
        while True:
            changed = self._changed.next()
            if self.made:
                return
            if self._has_ended:
                raise self.error or ClientClosed("the client was closed")
            rest = deadline - time.monotonic()
            hopeless = not isinstance(self.error, BrokerUnreachable)
            if self.error is not None and (hopeless or rest <= 0):
                raise self.error
            try:
                yield Wait(changed, max(rest, 0) if self.error is not None else None)
            except TimeoutError:
                continue
