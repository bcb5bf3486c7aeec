"""The connections of a client, each opened on first use."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial

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
from rabbitdelay.engine.shared_connection import SharedConnection
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
        self._closed = threading.Event()
        self._begin_anew()

    def publisher(self) -> Flow[Publisher]:
        """Return the connected publisher, and create it on first use."""
        self._begin_anew_if_forked()
        publisher = self._publishers.opened
        if publisher is None:
            publisher = yield from self._publishers.get(self._new_publisher)
        return publisher

    def ready_publisher(self) -> Publisher | None:
        """Return the publisher without running a flow; None if it is not connected."""
        return self._publishers.opened if self._process_id == os.getpid() else None

    def consuming_side(self) -> Flow[ConsumingSide]:
        """Return the connected consuming side, and create it on first use."""
        self._begin_anew_if_forked()
        side = self._sides.opened
        if side is None:
            publisher = yield from self.publisher()
            side = yield from self._sides.get(partial(self._new_consuming_side, publisher))
        elif not side.consumer.may_wait:
            raise RabbitDelayError(
                "this call waits for the broker, and must not be made in a callback"
            )
        return side

    @property
    def may_wait(self) -> bool:
        """Whether the caller may wait for the publisher. False on the publisher's own thread."""
        publisher = self._publishers.opened
        return publisher is None or publisher.may_wait()

    @property
    def current_log_reader(self) -> LogReader | None:
        """The reader of the log of deletes; None unless it has read the log to its end."""
        log_reader = self.log_reader
        return log_reader if log_reader is not None and log_reader.is_current else None

    @property
    def log_reader(self) -> LogReader | None:
        """The reader of the log of deletes; None until the consuming side is connected."""
        side = self._sides.opened
        return None if side is None else side.log_reader

    @property
    def current_consuming_side(self) -> ConsumingSide | None:
        """The consuming side; None until it is connected for the first time."""
        return self._sides.opened

    def side_connection(self) -> SideConnection:
        """Return a new connection for administration, which is not open yet."""
        self.refuse_when_closed()
        return SideConnection(self._new_transport("rabbitdelay-administration"), self._addresses)

    def refuse_when_closed(self) -> None:
        """Raise ClientClosed if the client was closed."""
        if self._closed.is_set():
            raise ClientClosed("the client is closed")

    def learn(self, record: Record) -> None:
        """Apply a confirmed record at once, so that this client's own pops respect its deletes."""
        side = self._sides.opened
        if side is not None:
            side.log_reader.known.learn(record)

    def new_consumer(self, policy: Callable[[str], Policies]) -> Flow[tuple[Consumer, LogReader]]:
        """Return a consumer that publishes through the client's publisher, and its log reader."""
        publisher = yield from self.publisher()
        return self._consumer(publisher, policy, for_worker=True)

    def close(self, flush_seconds: float) -> Flow[None]:
        """Wait for everything that is in flight, and close."""
        self._closed.set()
        side, publisher = self._sides.take(), self._publishers.take()
        if self._process_id != os.getpid():
            return
        deadline = self._settings.monotonic() + flush_seconds
        if side is not None:
            yield from side.close(flush_seconds)
        if publisher is not None:
            yield from publisher.close(max(0.0, deadline - self._settings.monotonic()))

    def _new_publisher(self) -> Publisher:
        transport = self._new_transport("rabbitdelay-publisher")
        window = Window(self._settings.window, WINDOW_BYTES, self._settings.monotonic)
        return Publisher(transport, self._addresses, self._new_routes(), window, self.rescue_guard)

    def _new_consuming_side(self, publisher: Publisher) -> ConsumingSide:
        policies = Policies(self._settings.retry)
        consumer, log_reader = self._consumer(publisher, lambda _: policies, for_worker=False)
        return ConsumingSide(consumer, log_reader, publisher)

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

    def _begin_anew_if_forked(self) -> None:
        if self._process_id != os.getpid():
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Reset all state, initially and in a forked child, where no threads survive."""
        timeout = self._settings.connect_timeout
        self._process_id = os.getpid()
        self.rescue_guard = RescueGuard()
        self._publishers = SharedConnection[Publisher](timeout, self._closed)
        self._sides = SharedConnection[ConsumingSide](timeout, self._closed)
