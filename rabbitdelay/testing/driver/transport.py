"""The transport in memory: callbacks in a place of the timeline, with at most one connection."""

from collections.abc import Callable

from rabbitdelay.address import Address
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Connection, Then, TransportOwner
from rabbitdelay.errors import BrokerUnreachable, ConnectionFailed
from rabbitdelay.testing.driver.connection import MemoryConnection
from rabbitdelay.testing.driver.links import Links
from rabbitdelay.testing.time.places import LoopPlace, Place, ThreadPlace
from rabbitdelay.testing.time.timeline import Timeline
from rabbitdelay.testing.time.timers import Timer

Find = Callable[[Address], Links | None]
"""Returns the way to the broker with an address; None if no broker has it."""


class MemoryTransport:
    """A transport of the sync front end, or of the asyncio front end on the running event loop."""

    def __init__(self, name: str, timeline: Timeline, find: Find, *, is_async: bool) -> None:
        self.ended: Future[None] = Future()
        self.ended.set_running_or_notify_cancel()
        self._name = name
        self._timeline = timeline
        self._find = find
        self._is_async = is_async
        self._place: Place = LoopPlace() if is_async else ThreadPlace()
        self._owner: TransportOwner | None = None
        self._connection: MemoryConnection | None = None
        self._is_started = False

    # Called from any thread

    def start(self, owner: TransportOwner, first: Then) -> None:
        """Start by scheduling `first`."""
        self._owner = owner
        self._is_started = True
        self.call(first)

    def call(self, function: Then) -> bool:
        """Schedule a function; False if the transport has ended or was never started."""
        if not self._is_started or self.ended.done() or self._place.is_gone:
            return False
        self._timeline.post(self._place, function)
        return True

    def may_wait(self) -> bool:
        """Whether the caller may wait for the transport, which its own callbacks may not."""
        return self._is_async or not self._place.is_here()

    def monotonic(self) -> float:
        """Return the seconds on the clock of the timeline."""
        return self._timeline.monotonic()

    # Called in its place

    def call_later(self, seconds: float, function: Then) -> object:
        """Schedule a function after a delay; return a handle for `cancel`."""
        return self._timeline.call_later(self._place, seconds, function)

    def call_sometime(self, seconds: float, function: Then) -> object:
        """Schedule a function that does not move the clock."""
        return self._timeline.call_later(self._place, seconds, function, may_be_late=True)

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later`."""
        assert isinstance(timer, Timer)
        timer.cancel()

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        """Connect; call `failed` once, when connecting fails or the connection is lost."""
        links = self._find(address)
        if links is None:
            text = f"{address}: cannot connect: check that the broker is running and that the "
            error = BrokerUnreachable(f"{text}address is correct")
            self._timeline.post(self._place, lambda: failed(error))
            return

        def lost(reason: str) -> None:
            self._connection = None
            failed(BrokerUnreachable(f"{address}: {reason}"))

        connection = self._connection = MemoryConnection(
            self._name, links.endpoint, self._place, lost
        )
        links.add(connection)
        connection.open(lambda: opened(connection), address.connection_timeout_seconds)

    def stop(self) -> None:
        """Close the connection, and end."""
        if self._connection is None:
            self._end()
        else:
            self._connection.close()

    def cut(self) -> None:
        """Drop a connection whose closing handshake the broker does not complete."""
        if self._connection is not None:
            self._connection.cut()

    def abandon(self) -> None:
        """Forget the connection in a forked child."""
        self._connection = None

    def _end(self) -> None:
        if not self.ended.done():
            assert self._owner is not None
            self._owner.connection_closed()
            self.ended.set_result(None)
