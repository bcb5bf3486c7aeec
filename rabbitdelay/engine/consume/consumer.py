"""The consumer: one connection on which jobs are received and settled.

Each delivery is passed to the owner of its channel. Acks and nacks are buffered and sent together,
because a busy worker has several by the time they are sent. Before the connection is closed, the
broker has to prove that it applied all of them.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rabbitdelay.address import Address
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Do, Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.validation import RANDOM_HEX_DIGITS
from rabbitdelay.core.settle.acknowledgements import MAX_WAIT_SECONDS
from rabbitdelay.core.topology import setup
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.acks.ack_buffer import AckBuffer
from rabbitdelay.engine.acks.ack_proof import AckProof
from rabbitdelay.engine.connection import Connector, FirstConnection, logger
from rabbitdelay.engine.consume.listener import ConsumerListener
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.settle.republisher import KeepKnown
from rabbitdelay.engine.settle.settlement import Settlement
from rabbitdelay.engine.topology.declarer import Declarer, flush_name
from rabbitdelay.engine.transport import Channel, Closed, Connection, OnInbound, Then, Transport
from rabbitdelay.engine.transport_source import Waiter
from rabbitdelay.errors import ConnectionFailed, NotAJob
from rabbitdelay.models import DEFAULT_TTR_MS, Job
from rabbitdelay.system_time import TimeSource

COPY_TIMEOUT_SECONDS = 30.0
"""Timeout for publishing the copy of a job; then the message itself is returned instead."""
PROOF_SECONDS = 2.0
"""Time for the broker to prove that it has all acks, before the connection is closed."""
OnReady = Callable[[Exception | None], None]
OnFound = Callable[[Sequence[Part] | Exception], None]


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
        self.monotonic = transport.monotonic
        """Returns the seconds on the transport's monotonic clock."""
        self.may_found = may_found
        """Whether a missing namespace is created: by workers, but not by pops."""
        self.publisher = publisher
        self.settlement = Settlement(
            topology,
            publisher,
            self,
            policy,
            copy_timeout=COPY_TIMEOUT_SECONDS,
            reply_queues=reply_queues,
            death=death,
            keep_known=keep_known,
            clock=clock,
            monotonic=transport.monotonic,
            waiter=waiter,
        )
        self._clock = clock
        self.first = FirstConnection(transport.monotonic)
        self._connector = Connector(transport, addresses, self)
        self._closed = False
        # Guarded by the settlement lock:
        self._ack_buffer = AckBuffer()
        self._woken = False
        # Used by the transport's thread only:
        self._listener: ConsumerListener | None = None
        self._routes = routes
        self._inbound_handlers: dict[int, OnInbound] = {}
        self._channels: dict[int, Channel] = {}
        self._room_makers: dict[int, Then] = {}
        self._is_flush_due = False
        self._ack_proof: AckProof | None = None
        self._timer_at: float | None = None
        self._timer: object = None

    # From any thread

    def start(self, listener: ConsumerListener) -> None:
        """Start to connect."""
        self._listener = listener
        self._connector.start()

    def connected(self, timeout: float) -> Flow[None]:
        """Wait for the first connection; raise the error that prevents it."""
        return self.first.wait(timeout)

    def call(self, function: Callable[[], None]) -> bool:
        """Schedule a function on the transport's thread; return False if that has ended."""
        return self._connector.call(function)

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
        if not self._closed:
            self._closed = True
            deadline = self.monotonic() + flush_seconds
            self._connector.call(partial(self._begin_close, deadline))

    def abandon(self) -> None:
        """Drop the parent's connection in a forked child, without sending anything on it."""
        self._closed = True
        self.settlement.abandon()
        self._connector.transport.abandon()

    @property
    def connection(self) -> Connection | None:
        """The open connection, or None; only for the transport's thread."""
        return self._connector.connection

    # Called with the settlement lock held, on any thread

    def settle(self, lease: Lease, do: Do) -> None:
        """Send an ack or nack soon."""
        if do is not Do.NOTHING:
            self._ack_buffer.settle(lease.channel, lease.tag, do)
            self.wake()

    def wake(self) -> None:
        """Make the transport's thread send buffered settlements and hand out more jobs."""
        if not self._woken:
            self._connector.call(self._go_on)
            self._woken = True  # after the call, because a signal handler may raise in it

    def schedule(self, at: float) -> None:
        """Make sure that deadlines are checked at this time."""
        if self._timer_at is None or at < self._timer_at:
            self._connector.call(self._set_timer)
            self._timer_at = at  # after the call, as above

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Schedule a function on the transport's thread, after a delay."""

        def set_timer() -> None:
            self.call_later(seconds, function)

        self._connector.call(set_timer)

    def make_room(self, lease: Lease) -> None:
        """Prefetch another job in place of one that waits to be published."""
        channel = lease.channel

        def make() -> None:
            if make_room := self._room_makers.get(channel):
                make_room()

        self._connector.call(make)

    # Called by the listeners, on the transport's thread

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        connection = self._connector.connection
        return connection is not None and connection.is_open

    def open_channel(
        self,
        opened: Callable[[Channel], None],
        on_inbound: OnInbound,
        prefetch: int | None = None,
        make_room: Then | None = None,
    ) -> None:
        """Open a channel whose deliveries are passed to `on_inbound`.

        `make_room` is called for each job of the channel that waits to be published.
        """
        connection = self._connector.connection
        if connection is None or not connection.is_open:
            return  # the caller is notified of the next connection

        def ready(channel: Channel) -> None:
            self._inbound_handlers[channel.number] = on_inbound
            self._channels[channel.number] = channel
            if make_room is not None:
                self._room_makers[channel.number] = make_room
            with self.settlement.lock:
                self._ack_buffer.opened(channel.number, prefetch)
            channel.on_closed(self._channel_closed)
            opened(channel)

        connection.open_channel(ready)

    def make(self, parts: Iterable[Part], ready: OnReady, *, may_found: bool = False) -> None:
        """Declare the missing ones of these queues, and wait until a crash cannot lose their jobs.

        A namespace that does not exist is an error, unless this consumer or this call may create
        it.
        """
        connection, wanted = self._connector.connection, tuple(parts)
        if connection is None or not connection.is_open:
            return
        if self._routes.are_made(wanted):
            ready(None)
            return

        def made(result: bool | Exception) -> None:  # noqa: FBT001 - the conversation's result
            if not isinstance(result, Exception):
                self._routes.learn(wanted, unstable=result, now=self.monotonic())
                self._rescue_jobs_for(wanted)
            ready(result if isinstance(result, Exception) else None)

        may_found = may_found or self.may_found
        conversation = self._routes.set_up(
            wanted, may_found=may_found, flush=flush_name(connection)
        )
        Declarer(connection, conversation, made, self).start()

    def find(self, parts: Sequence[Part], found: OnFound) -> None:
        """Find out which of these queues exist, without declaring any."""
        connection = self._connector.connection
        unknown = [part for part in parts if not self._routes.are_made((part,))]
        if connection is None or not connection.is_open:
            return
        if not unknown:
            found(parts)
            return

        def looked(result: tuple[Part, ...] | Exception) -> None:
            if isinstance(result, Exception):
                found(result)
                return
            if self._routes.has_base:
                self._routes.learn(result, unstable=False, now=self.monotonic())
            found([part for part in parts if part not in unknown or part in result])

        Declarer(connection, setup.find(unknown), looked, self).start()

    def _rescue_jobs_for(self, parts: Iterable[Part]) -> None:
        """Have jobs republished that were parked while one of these queues was missing."""
        if any(not part.is_stream for part in parts):
            self.publisher.rescue()

    def forget_made(self) -> None:
        """Forget which queues exist, so that they are looked for again before their next use."""
        self._routes.forget()

    def send(self, data: bytes) -> None:
        """Send frames now."""
        connection = self._connector.connection
        if connection is not None and connection.is_open:
            connection.send_frames(data)

    def call_later(self, seconds: float, function: Callable[[], None]) -> object:
        """Schedule a function on the transport's thread, after a delay.

        Return a handle for `cancel`.
        """
        return self._connector.call_later(seconds, function)

    def call_sometime(self, seconds: float, function: Then) -> object:
        """Schedule a function that may be called late; return a handle for `cancel`."""
        return self._connector.call_sometime(seconds, function)

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later`."""
        self._connector.transport.cancel(timer)

    def read_job(
        self, delivery: Delivery, topic: str, default_ttr_ms: int = DEFAULT_TTR_MS
    ) -> Lease | None:
        """Return the job in a delivery as a lease that is not handed out.

        A message that is not a job is buried.
        """
        now_ms = int(self._clock() * 1000)
        message = delivery.message
        with self.settlement.lock:
            self._ack_buffer.delivered(delivery.channel, delivery.tag, topic)
        if delivery.problem is not None:
            self._refuse(delivery, topic, now_ms, delivery.problem)
            return None
        random_hex = "" if message.message_id else secrets.token_hex(RANDOM_HEX_DIGITS // 4)
        try:
            job = envelope.decode(
                message,
                topic=topic,
                now_ms=now_ms,
                random_hex=random_hex,
                default_ttr_ms=default_ttr_ms,
            )
        except NotAJob as error:
            self._refuse(delivery, topic, now_ms, str(error))
            return None
        if not message.message_id:
            message = envelope.named(message, job)
        lease = Lease(
            job,
            message,
            delivery.channel,
            delivery.tag,
            now_ms,
            envelope.redeliveries(message, redelivered=delivery.redelivered),
            default_max_attempts=self.settlement.max_attempts(topic),
            received_at=self.monotonic(),
        )
        with self.settlement.lock:
            self.settlement.leases.take(lease)
        return lease

    def lose_channel(self, channel: Channel | None) -> list[Lease]:
        """End the leases of a channel that this side closed: the broker requeues its jobs."""
        if channel is None:
            return []
        return self._lose(channel.number)

    def _go_on(self) -> None:
        self.flush()
        self._read()
        self.flush()

    def flush(self, *, everything: bool = False) -> None:
        """Send buffered settlements; with `everything`, also acks that wait for older ones."""
        with self.settlement.lock:
            self._woken = False
            data = self._ack_buffer.take(self.monotonic(), everything=everything)
            is_any_waiting = self._ack_buffer.is_any_waiting
        if data:
            self.send(data)
        if is_any_waiting and not self._is_flush_due:
            self._is_flush_due = True
            self.call_later(MAX_WAIT_SECONDS, self._flush_waiting)

    def _flush_waiting(self) -> None:
        self._is_flush_due = False
        self.flush()

    # Called by the transport

    def connection_opened(self, connection: Connection) -> None:
        """Start to read deliveries, and notify the listener."""
        connection.read_deliveries(self._inbound, self._read)
        self.first.opened()
        assert self._listener is not None
        self._listener.connected()

    def connection_failed(self, error: ConnectionFailed) -> None:
        """End all leases, and notify the listener."""
        self._routes.forget()
        lost = self._lose(None)
        self.first.failed(error)
        assert self._listener is not None
        self._listener.disconnected(error, lost)

    def connection_closed(self) -> None:
        """End all leases and notify the listener. This is the last call, even after a failure."""
        self._closed = True
        self.first.ended()
        self._lose(None)
        assert self._listener is not None
        self._listener.closed()

    def _channel_closed(self, channel: Channel, closed: Closed) -> None:
        self._routes.forget()  # the queue may have been deleted
        lost = self._lose(channel.number)
        assert self._listener is not None
        self._listener.channel_lost(channel.number, closed.error(), lost)

    def _lose(self, channel: int | None) -> list[Lease]:
        """Forget a closed channel, or all of them, and end the leases of its jobs."""
        with self.settlement.lock:
            self._ack_buffer.lose(channel)
            lost = self.settlement.lose(channel)
        for number in [channel] if channel is not None else list(self._channels):
            self._channels.pop(number, None)
            self._inbound_handlers.pop(number, None)
            self._room_makers.pop(number, None)
        self.settlement.tell_lost(lost)
        if self._ack_proof is not None:
            self._ack_proof.lose(channel)
        return lost

    # Deliveries

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        handler = self._inbound_handlers.get(found.channel)
        if handler is not None:
            handler(found)

    def _read(self) -> None:
        if self._listener is not None:
            self._listener.read()

    def _refuse(self, delivery: Delivery, topic: str, now_ms: int, reason: str) -> None:
        """Bury a message that is not a job, as a copy with the reason or by dead-lettering it."""
        if delivery.problem is not None:
            logger.warning("topic %s: message buried (%s)", topic, reason)
            with self.settlement.lock:
                self._ack_buffer.settle(delivery.channel, delivery.tag, Do.DEAD_LETTER)
                self.wake()
            return
        job = Job(topic, delivery.message.message_id or "", "", now_ms, now_ms, 0, b"")
        lease = Lease(job, delivery.message, delivery.channel, delivery.tag, now_ms)
        self.settlement.bury_unread(lease, f"not a job: {reason}")

    # Deadlines

    def _set_timer(self) -> None:
        if self._timer is not None:
            self.cancel(self._timer)
            self._timer = None
        with self.settlement.lock:
            at = self._timer_at
        if at is not None:
            rest = max(0.0, at - self.monotonic())
            self._timer = self.call_later(rest, self._expire)

    def _expire(self) -> None:
        self._timer = None
        expired = self.settlement.expire()
        following = self.settlement.next_expiry()
        with self.settlement.lock:
            self._timer_at = following
        self._set_timer()
        if expired and self._listener is not None:
            self._listener.expired(expired)

    # Closing

    def _begin_close(self, deadline: float) -> None:
        assert self._listener is not None
        self._listener.closed()
        self.settlement.hand_back_all()
        self._close_when_done(deadline)

    def _close_when_done(self, deadline: float) -> None:
        """Wait for the copies in flight, because their messages can be acknowledged afterwards."""
        # Checked before the flush, because acks of copies confirmed in between need another flush.
        is_any_leaving = self.settlement.is_any_leaving()
        self.flush(everything=True)
        if is_any_leaving and self.monotonic() < deadline:
            self._connector.call_later(0.02, partial(self._close_when_done, deadline))
        else:
            self._prove(deadline)

    def _prove(self, deadline: float) -> None:
        """Close when the broker has proved that it has all settlements, or after a timeout."""
        ack_proof = self._ack_proof = AckProof(self.send, self._connector.close)
        with self.settlement.lock:
            unproven = list(self._ack_buffer.unproven())
        for number, topics in unproven:
            self._inbound_handlers[number] = ack_proof.inbound
            for topic in topics:
                ack_proof.ask(self._channels[number], self.topology.ready_queue(topic))
        ack_proof.end_if_complete()
        seconds = min(PROOF_SECONDS, max(0.0, deadline - self.monotonic()))
        self._connector.call_later(seconds, partial(self._close_unproven, ack_proof))

    def _close_unproven(self, ack_proof: AckProof) -> None:
        if ack_proof.missing:
            logger.warning(
                "consumer: closed without proof that the broker has all acknowledgements "
                "(%d queues did not answer; finished jobs may be redelivered)",
                ack_proof.missing,
            )
        ack_proof.end()
