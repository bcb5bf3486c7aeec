"""The connections of a client, each opened on first use."""

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence

from rabbitdelay.address import Address
from rabbitdelay.core.deletes.records import Record
from rabbitdelay.core.deletes.tombstones import GRACE_MS
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.engine.administration.side_connection import SideConnection
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consuming_side import ConsumingSide
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.deletes.appender import Appender
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.parked.rescue_guard import RescueGuard
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.publish.window import Window
from rabbitdelay.engine.transport import Transport
from rabbitdelay.errors import ClientClosed, RabbitDelayError

WINDOW_BYTES = 64 * 1024 * 1024


class Connections:
    """Owns the publisher and the consuming side of one client in one process."""

    def __init__(
        self,
        new_transport: Callable[[str], Transport],
        addresses: Sequence[Address],
        settings: ClientSettings,
    ) -> None:
        self._new_transport = new_transport
        self._addresses = addresses
        self._settings = settings
        self._closed = False
        self._publisher: Publisher | None = None
        self._connecting: Publisher | None = None
        self._consuming_side: ConsumingSide | None = None
        self._connecting_side: ConsumingSide | None = None
        self._begin_anew()

    def publisher(self) -> Flow[Publisher]:
        """Return the connected publisher, and create it on first use."""
        if self._process_id != os.getpid():
            self._begin_anew()
        publisher = self._publisher
        if publisher is not None and publisher.has_ended and not self._closed:
            publisher = self._publisher = None  # its thread has died, or its event loop ended
        return publisher if publisher is not None else (yield from self._start_publisher())

    def ready_publisher(self) -> Publisher | None:
        """Return the publisher without running a flow; None if it is not connected."""
        publisher = self._publisher
        if publisher is None or publisher.has_ended or self._process_id != os.getpid():
            return None
        return publisher

    def consuming_side(self) -> Flow[ConsumingSide]:
        """Return the connected consuming side, and create it on first use."""
        if self._process_id != os.getpid():
            self._begin_anew()
        side = self._consuming_side
        if side is not None and side.consumer.has_ended and not self._closed:
            side = self._consuming_side = None  # its thread has died, or its event loop ended
        if side is not None and not side.consumer.may_wait:
            raise RabbitDelayError(
                "this call waits for the broker, and must not be made in a callback"
            )
        return side if side is not None else (yield from self._start_consuming_side())

    @property
    def may_wait(self) -> bool:
        """Whether the caller may wait for the publisher. False on the publisher's own thread."""
        return self._publisher is None or self._publisher.may_wait()

    @property
    def current_log_reader(self) -> LogReader | None:
        """The reader of the log of deletes; None unless it has read the log to its end."""
        side = self._consuming_side
        return side.log_reader if side is not None and side.log_reader.is_current else None

    def side_connection(self) -> SideConnection:
        """Return a new connection for administration, which is not open yet."""
        self.refuse_when_closed()
        return SideConnection(self._new_transport("rabbitdelay-administration"), self._addresses)

    def refuse_when_closed(self) -> None:
        """Raise ClientClosed if the client was closed."""
        if self._closed:
            raise ClientClosed("the client is closed")

    def learn(self, record: Record) -> None:
        """Apply a confirmed record at once, so that this client's own pops respect its deletes."""
        side = self._consuming_side
        if side is not None:
            side.log_reader.known.learn(record)

    def new_consumer(self, policy: Callable[[str], Policies]) -> Flow[tuple[Consumer, LogReader]]:
        """Return a consumer that publishes through the client's publisher, and its log reader."""
        publisher = yield from self.publisher()
        return self._consumer(publisher, policy, for_worker=True)

    def close(self, flush_seconds: float) -> Flow[None]:
        """Wait for everything that is in flight, and close."""
        with self._lock:
            self._closed = True
            side, self._consuming_side = self._consuming_side or self._connecting_side, None
            publisher, self._publisher = self._publisher or self._connecting, None
        if self._process_id != os.getpid():
            return
        deadline = self._settings.monotonic() + flush_seconds
        if side is not None:
            yield from side.consumer.close(flush_seconds)
        if publisher is not None:
            yield from publisher.close(max(0.0, deadline - self._settings.monotonic()))

    def _start_publisher(self) -> Flow[Publisher]:
        """Connect, or wait for the connection that another caller has started."""
        with self._lock:
            self.refuse_when_closed()
            publisher = self._publisher or self._connecting
            if publisher is None:
                transport = self._new_transport("rabbitdelay-publisher")
                window = Window(self._settings.window, WINDOW_BYTES, self._settings.monotonic)
                publisher = Publisher(
                    transport, self._addresses, self._new_routes(), window, self.rescue_guard
                )
                self._connecting = publisher
                self._start(publisher.start, publisher)
            self._waiting[publisher] += 1
        yield from self._until_connected(publisher)
        with self._lock:
            if self._connecting is publisher:
                self._connecting = None
                self._publisher = publisher
                weakref.finalize(self, publisher.close_soon).atexit = False
        return publisher

    def _start_consuming_side(self) -> Flow[ConsumingSide]:
        publisher = yield from self.publisher()
        with self._lock:
            self.refuse_when_closed()
            side = self._consuming_side or self._connecting_side
            if side is None:
                policies = Policies(self._settings.retry)
                side = ConsumingSide(
                    *self._consumer(publisher, lambda _: policies, for_worker=False)
                )
                self._connecting_side = side
                self._start(side.start, side.consumer)
            self._waiting[side.consumer] += 1
        yield from self._until_connected(side.consumer)
        with self._lock:
            if self._connecting_side is side:
                self._connecting_side = None
                self._consuming_side = side
                weakref.finalize(self, side.consumer.close_soon).atexit = False
        return side

    def _start(self, start: Callable[[], None], one: Publisher | Consumer) -> None:
        """Start to connect, and clean up if a signal handler raises meanwhile."""
        try:
            start()
        except BaseException:
            self._connecting = self._connecting_side = None
            one.close_soon(0)
            raise

    def _until_connected(self, one: Publisher | Consumer) -> Flow[None]:
        """Wait for a first connection. If all callers that wait give up, the last one closes it."""
        try:
            yield from one.connected(self._settings.connect_timeout)
            self.refuse_when_closed()
        except GeneratorExit:  # a signal handler raised in the caller, so waiting is impossible
            if self._gives_up_last(one):
                one.close_soon(0)
            raise
        except BaseException:
            if self._gives_up_last(one):
                yield from one.close(0)
            raise
        with self._lock:
            self._waiting.pop(one, None)

    def _gives_up_last(self, one: Publisher | Consumer) -> bool:
        with self._lock:
            self._waiting[one] -= 1
            if self._waiting[one] > 0:
                return False
            del self._waiting[one]
            if self._connecting is one:
                self._connecting = None
            if self._connecting_side is not None and self._connecting_side.consumer is one:
                self._connecting_side = None
            return True

    def _consumer(
        self, publisher: Publisher, policy: Callable[[str], Policies], *, for_worker: bool
    ) -> tuple[Consumer, LogReader]:
        """Return a consumer and its log reader, which share the deletes that are known.

        A worker creates a missing namespace and reads the log at once; pops do neither.
        """
        settings = self._settings
        appender = Appender(publisher, settings.topology.log(), may_found=for_worker)
        known = KnownDeletes(settings.clock, GRACE_MS)
        consumer = Consumer(
            self._new_transport("rabbitdelay-consumer"),
            self._addresses,
            settings.topology,
            routes=self._new_routes(),
            publisher=publisher,
            policy=policy,
            reply_queues=settings.reply_queues,
            death=known.death,
            keep_known=appender.keep_known,
            clock=settings.clock,
            waiter=settings.transport,
            may_found=for_worker,
        )
        return consumer, LogReader(consumer, known, appender, is_wanted=for_worker)

    def _new_routes(self) -> Routes:
        settings = self._settings
        return Routes(
            settings.topology,
            may_declare=settings.declare,
            stabilise_seconds=settings.stabilise_seconds,
        )

    def _begin_anew(self) -> None:
        """Reset all state, initially and in a forked child, where no threads survive."""
        self._process_id = os.getpid()
        self.rescue_guard = RescueGuard()
        self._lock = threading.Lock()
        self._publisher = self._connecting = None
        self._consuming_side = self._connecting_side = None
        self._waiting: Counter[Publisher | Consumer] = Counter()
        """Number of callers waiting for the first connection of each."""
