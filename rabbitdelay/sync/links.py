"""The links of a client: its connections, each made when it is first needed."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from rabbitdelay.address import Address
from rabbitdelay.core.retry import RetryPolicy
from rabbitdelay.core.routes import Routes
from rabbitdelay.core.topology import Topology
from rabbitdelay.errors import ClientClosed, RabbitDelayError
from rabbitdelay.sync.appending import Appender
from rabbitdelay.sync.consumer import Consumer
from rabbitdelay.sync.following import Follower
from rabbitdelay.sync.front import Front
from rabbitdelay.sync.publisher import Publisher
from rabbitdelay.sync.rescue import rescue_in_background
from rabbitdelay.sync.window import Window

WINDOW_BYTES = 64 * 1024 * 1024


class Links:
    """The publisher and the front of one client, in the process that it is used in."""

    def __init__(
        self,
        addresses: Sequence[Address],
        topology: Topology,
        *,
        declare: bool,
        settle_seconds: float,
        connect_timeout: float,
        window_puts: int,
        retry: RetryPolicy,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._addresses = addresses
        self._topology = topology
        self._declare = declare
        self._settle_seconds = settle_seconds
        self._connect_timeout = connect_timeout
        self._window_puts = window_puts
        self._retry = retry
        self._clock = clock
        self._closed = False
        self._publisher: Publisher | None = None
        self._front: Front | None = None
        self._begin_anew()

    def publisher(self) -> Publisher:
        """The publisher, connected; made if need be."""
        if self._process_id != os.getpid():
            self._begin_anew()
        publisher = self._publisher
        return publisher if publisher is not None else self._start_publisher()

    def front(self) -> Front:
        """The consuming side, connected; made if need be."""
        if self._process_id != os.getpid():
            self._begin_anew()
        front = self._front
        if front is not None and front.consumer.has_ended and not self._closed:
            front = self._front = None  # its thread has died
        if front is not None and front.consumer.on_own_thread:
            raise RabbitDelayError(
                "this waits for the broker, and must not be called in a callback"
            )
        return front if front is not None else self._start_front()

    @property
    def is_on_publishers_thread(self) -> bool:
        """Whether the caller is on the publisher's I/O thread, where nobody may wait."""
        return self._publisher is not None and self._publisher.on_own_thread

    def new_consumer(self, policy: Callable[[str], RetryPolicy]) -> Consumer:
        """Return a consumer that gives back through the publisher."""
        routes = self._new_routes()
        return Consumer(self._addresses, self._topology, routes, self.publisher(), policy)

    def new_follower(self, consumer: Consumer, *, is_wanted: bool = True) -> Follower:
        """Return who tells a consumer which jobs were deleted."""
        appender = Appender(self.publisher())
        follower = Follower(consumer, appender, clock=self._clock, is_wanted=is_wanted)
        consumer.holding.death = follower.death
        consumer.holding.keep_known = follower.keep_known
        return follower

    def rescue(self) -> None:
        """Send on, in the background, jobs that the broker parked while it started."""
        self._rescuer()()

    def close(self, flush_seconds: float) -> None:
        """Wait for what is on its way, and close."""
        self._closed = True
        front, self._front = self._front, None
        publisher, self._publisher = self._publisher, None
        if self._process_id != os.getpid():
            return
        if front is not None:
            front.consumer.close(flush_seconds)
        if publisher is not None:
            publisher.close(flush_seconds)

    def _start_publisher(self) -> Publisher:
        with self._lock:
            self._refuse_when_closed()
            if self._publisher is None:
                publisher = Publisher(
                    self._addresses, self._new_routes(), self.window, self._rescuer()
                )
                try:
                    publisher.start(self._connect_timeout)
                except BaseException:
                    publisher.close(0)
                    raise
                weakref.finalize(self, publisher.close_soon).atexit = False
                self._publisher = publisher
            return self._publisher

    def _start_front(self) -> Front:
        self.publisher()
        with self._lock:
            self._refuse_when_closed()
            if self._front is None:
                retry = self._retry
                consumer = self.new_consumer(lambda _: retry)
                front = Front(consumer, self.new_follower(consumer, is_wanted=False))
                try:
                    front.start(self._connect_timeout)
                except BaseException:
                    front.consumer.close(0)
                    raise
                weakref.finalize(self, front.consumer.close_soon).atexit = False
                self._front = front
            return self._front

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")

    def _new_routes(self) -> Routes:
        return Routes(
            self._topology, may_declare=self._declare, settle_seconds=self._settle_seconds
        )

    def _rescuer(self) -> Callable[[], None]:
        """What is done after a reconnect; it must not hold the client itself."""
        if not self._declare:
            return lambda: None
        return partial(rescue_in_background, self._addresses, self._topology)

    def _begin_anew(self) -> None:
        """Start with nothing shared: at first, and in a forked child, where threads are gone."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self.window = Window(self._window_puts, WINDOW_BYTES)
        self._publisher = None
        self._front = None
