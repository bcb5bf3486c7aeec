"""The consumer: one connection on which jobs are received and settled.

It puts together what a consuming connection consists of, and passes on what happens to the
connection. Jobs are received by `channels` and read by `jobs`, and leave by `settlement`.
"""

from collections.abc import Callable, Sequence
from functools import partial

from rabbitdelay.address import Address
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.acks.ack_buffer import AckBuffer
from rabbitdelay.engine.acks.ack_sender import AckSender
from rabbitdelay.engine.acks.wake_up import WakeUp
from rabbitdelay.engine.connection import Connector, FirstConnection
from rabbitdelay.engine.consume.channels import ConsumerChannels
from rabbitdelay.engine.consume.deadline_timer import DeadlineTimer
from rabbitdelay.engine.consume.job_reader import JobReader
from rabbitdelay.engine.consume.listener import ConsumerListener
from rabbitdelay.engine.consume.orderly_end import OrderlyEnd
from rabbitdelay.engine.consume.queue_setup import QueueSetup
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.republish.copies import KeepKnown
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.engine.settle.loss_callbacks import LossCallbacks
from rabbitdelay.engine.settle.settling_side import SettlingSide
from rabbitdelay.engine.transport import Connection, Then, Transport
from rabbitdelay.engine.transport_source import Waiter
from rabbitdelay.errors import ConnectionFailed
from rabbitdelay.system_time import TimeSource


class Consumer:
    """One consuming connection and its leases."""

    def __init__(
        self,
        transport: Transport,
        addresses: Sequence[Address],
        topology: Topology,
        *,
        routes: Routes,
        publisher: Publisher,
        policy: Callable[[str], Policies],
        reply_queues: ReplyQueues,
        death: Callable[[Lease], Death | None],
        keep_known: KeepKnown,
        may_found: bool,
        clock: TimeSource,
        waiter: Waiter | None,
    ) -> None:
        self.topology = topology
        self.first = FirstConnection(transport.monotonic)
        self._connector = connector = Connector(transport, addresses, self)
        self._listener: ConsumerListener | None = None
        self._is_closed = False
        self._wake_up = WakeUp(connector.call, self._go_on)
        timer = DeadlineTimer(connector, self._expire)
        acks = AckBuffer(self._wake_up.request)
        self._ledger = ledger = LeaseLedger(acks, transport.monotonic, timer.schedule)
        self._ack_sender = AckSender(acks, connector)
        callbacks = LossCallbacks()
        self.channels = ConsumerChannels(connector, ledger, acks, callbacks, self._channel_closed)
        self.queues = QueueSetup(connector, routes, publisher.rescue, may_found=may_found)
        settling = SettlingSide(
            connector,
            ledger,
            callbacks,
            topology,
            publisher=publisher,
            policy=policy,
            reply_queues=reply_queues,
            death=death,
            keep_known=keep_known,
            make_room=self.channels.make_room,
            clock=clock,
            waiter=waiter,
        )
        self.settlement = settling.settlement
        self._departures = settling.departures
        self.jobs = JobReader(
            ledger,
            acks,
            self._departures,
            self.settlement.fates,
            clock=clock,
            monotonic=transport.monotonic,
        )
        self._end = OrderlyEnd(connector, ledger, self._ack_sender, self.channels, topology)

    # From any thread

    def start(self, listener: ConsumerListener) -> None:
        """Start to connect."""
        self._listener = listener
        self._connector.start()

    def connected(self, timeout: float) -> Flow[None]:
        """Wait for the first connection; raise the error that prevents it."""
        return self.first.wait(timeout)

    def call(self, function: Then) -> bool:
        """Schedule a function on the transport's thread; return False if that has ended."""
        return self._connector.call(function)

    def wake(self) -> None:
        """Have the transport's thread send settlements and hand out more jobs, soon."""
        self._wake_up.request()

    @property
    def monotonic(self) -> TimeSource:
        """Returns the seconds on the transport's monotonic clock."""
        return self._connector.monotonic

    @property
    def has_ended(self) -> bool:
        """Whether the transport's thread has ended, so that nothing more is received."""
        return self._connector.has_ended

    @property
    def may_wait(self) -> bool:
        """Whether the caller may wait for the broker, which the transport's own thread may not."""
        return self._connector.transport.may_wait()

    def close(self, flush_seconds: float) -> Flow[None]:
        """Return unfinished jobs, wait for the copies in flight, and close."""
        self.close_soon(flush_seconds)
        return self._connector.until_ended(flush_seconds)

    def close_soon(self, flush_seconds: float = process_lifetime.EXIT_FLUSH_SECONDS) -> None:
        """Close in the background."""
        if not self._is_closed:
            self._is_closed = True
            deadline = self.monotonic() + flush_seconds
            self._connector.call(partial(self._begin_close, deadline))

    def abandon(self) -> None:
        """Drop the parent's connection in a forked child, without sending anything on it."""
        self._is_closed = True
        self._departures.abandon()
        self._connector.transport.abandon()

    # Called by the listeners, on the transport's thread

    @property
    def connection(self) -> Connection | None:
        """The connection, or None."""
        return self._connector.connection

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._connector.open_connection is not None

    def send(self, data: bytes) -> None:
        """Send frames now."""
        self._connector.send(data)

    def call_later(self, seconds: float, function: Then) -> object:
        """Schedule a function after a delay; return a handle for `cancel`."""
        return self._connector.call_later(seconds, function)

    def call_sometime(self, seconds: float, function: Then) -> object:
        """Schedule a function that may be called late; return a handle for `cancel`."""
        return self._connector.call_sometime(seconds, function)

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later`."""
        self._connector.transport.cancel(timer)

    # Called by the transport

    def connection_opened(self, connection: Connection) -> None:
        """Start to read deliveries, and notify the listener."""
        assert self._listener is not None
        connection.read_deliveries(self.channels.inbound, self._listener.read)
        self.first.opened()
        self._listener.connected()

    def connection_failed(self, error: ConnectionFailed) -> None:
        """End all leases, and notify the listener."""
        assert self._listener is not None
        self.queues.forget()
        lost = self.channels.lose_all()
        self.first.failed(error)
        self._listener.disconnected(error, lost)

    def connection_closed(self) -> None:
        """End all leases and notify the listener. This is the last call, even after a failure."""
        assert self._listener is not None
        self._is_closed = True
        self.first.ended()
        self.channels.lose_all()
        self._listener.closed()

    def _channel_closed(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        assert self._listener is not None
        self.queues.forget()  # the queue may have been deleted
        self._listener.channel_lost(number, error, lost)

    def _go_on(self) -> None:
        assert self._listener is not None
        self._ack_sender.flush()
        self._listener.read()
        self._ack_sender.flush()

    def _expire(self) -> float | None:
        """Give back the jobs whose deadline has passed; return the next deadline."""
        assert self._listener is not None
        expired = self._departures.expire()
        if expired:
            self._listener.expired(expired)
        return self._ledger.next_expiry()

    def _begin_close(self, deadline: float) -> None:
        assert self._listener is not None
        self._listener.closed()
        self._departures.return_all()
        self._end.begin(deadline)
