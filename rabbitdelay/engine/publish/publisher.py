"""The publisher: takes puts from any thread and publishes them until the broker confirms them.

Callers pass puts to `submit`. The rest runs on the transport's thread, in publishing_side.py.
"""

from collections.abc import Sequence
from functools import partial

from rabbitdelay.address import Address
from rabbitdelay.core.publish.pending import Pending
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.connection import Connector, FirstConnection
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.parked.rescue_guard import RescueGuard
from rabbitdelay.engine.parked.rescuer import Rescuer
from rabbitdelay.engine.publish.publishing_side import PublishingSide
from rabbitdelay.engine.publish.window import Window
from rabbitdelay.engine.transport import Connection, Transport, nothing
from rabbitdelay.errors import ClientClosed, ConnectionFailed


class Publisher:
    """Publishes over one connection after the other. Thread-safe."""

    def __init__(
        self,
        transport: Transport,
        addresses: Sequence[Address],
        routes: Routes,
        window: Window,
        rescue_guard: RescueGuard,
    ) -> None:
        self._transport = transport
        self.monotonic = transport.monotonic
        """Returns the seconds on the transport's monotonic clock."""
        self.may_wait = transport.may_wait
        """Returns whether the caller may wait. The transport's own thread may not."""
        self.window = window
        self._turn = 0
        """Number of times that the transport's thread has started to empty the inbox."""
        self._woken_in: int | None = None
        """The turn in which the thread was last woken. One wake-up per turn is enough."""
        self._closed = False
        self._connector = Connector(transport, addresses, self)
        self._first = FirstConnection(transport.monotonic)
        self._rescuer = Rescuer(self._connector, routes, self.submit_copy, rescue_guard)
        self._side = PublishingSide(
            self._connector,
            routes,
            window,
            self._first,
            opened=self._opened,
            queues_made=self._rescuer.queues_made,
        )

    # From any thread

    def start(self) -> None:
        """Start to connect."""
        self._connector.start()

    def connected(self, timeout: float) -> Flow[None]:
        """Wait for the first connection, and raise the error that prevents it."""
        return self._first.wait(timeout)

    def submit(self, pending: Pending) -> None:
        """Accept a put. Its `resolve` is called on the transport's thread.

        A signal handler may raise after any of these steps. The turn is therefore recorded after
        the call: if it is not recorded, the next submit wakes the thread once more, which is
        harmless.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        self.window.inbox.append(pending)
        turn = self._turn
        if self._woken_in != turn:
            if not self._connector.call(self._publish):  # the transport has ended
                self._closed = True
                self._side.refuse_the_rest()
            self._woken_in = turn

    def submit_copy(self, pending: Pending) -> None:
        """Accept the copy of a leased job, without waiting for room."""
        try:
            self.submit(pending)
        except ClientClosed as error:
            pending.resolve(error)

    def close(self, flush_seconds: float) -> Flow[None]:
        """Wait for unconfirmed messages, then close. Messages still unconfirmed then fail."""
        self.close_soon(flush_seconds)
        return self._connector.until_ended(flush_seconds)

    def close_soon(self, flush_seconds: float = process_lifetime.EXIT_FLUSH_SECONDS) -> None:
        """Close in the background."""
        if not self._closed:
            self._closed = True
            self._connector.call(partial(self._begin_close, flush_seconds))

    def abandon(self) -> None:
        """Forget the parent's connection in a forked child, without sending anything on it."""
        self._closed = True
        self._transport.abandon()

    def rescue(self) -> None:
        """Republish parked jobs in the background if their queues exist."""
        self._connector.call(self._rescuer.look_now)

    def rescue_ended(self) -> Future[None]:
        """Return a future that is done when no parked jobs are being republished."""
        ended: Future[None] = Future()
        call = partial(self._rescuer.when_ended, partial(ended.set_result, None))
        if not self._connector.call(call):
            ended.set_result(None)
        return ended

    @property
    def blocked(self) -> str | None:
        """The reason why the broker blocks publishers; None if it does not."""
        return self._side.alarm.reason

    @property
    def failure(self) -> ConnectionFailed | None:
        """The error of the last attempt to connect; None while connected."""
        return self._first.error

    @property
    def has_ended(self) -> bool:
        """Whether the transport has ended, so that nothing more can be published."""
        return self._transport.ended.done()

    # On the transport's thread

    def connection_opened(self, connection: Connection) -> None:
        """Open a channel for publishing."""
        connection.on_blocked(self._side.alarm.set)
        connection.read_deliveries(self._rescuer.inbound, nothing)
        self._side.connect()

    def connection_failed(self, error: ConnectionFailed) -> None:
        """Keep unconfirmed messages, to publish them again on the next connection."""
        self._side.connection_lost()
        self._rescuer.disconnected()
        self._first.failed(error)

    def connection_closed(self) -> None:
        """Fail the remaining messages. Runs last on this thread, even if the thread fails."""
        self._closed = True
        self._first.ended()
        self._side.refuse_the_rest()

    def _opened(self) -> None:
        if self._first.opened():
            self._rescuer.look_now()

    def _publish(self) -> None:
        self._turn += 1  # before emptying the inbox: a later put wakes the thread again
        self._side.publish()
        self._rescuer.published()

    def _begin_close(self, flush_seconds: float) -> None:
        self._publish()
        self._side.begin_close(flush_seconds)
