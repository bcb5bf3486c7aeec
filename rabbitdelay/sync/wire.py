"""The wire over pika: one I/O thread, and a SelectConnection on it."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pika
from pika import exceptions as pika_errors
from pika.adapters.select_connection import IOLoop
from pika.channel import Channel as PikaChannel
from pika.connection import Connection, ConnectionParameters, SSLOptions
from pika.exchange_type import ExchangeType

from rabbitdelay.address import Address
from rabbitdelay.core.deliveries import Deliveries, Other
from rabbitdelay.core.topology import Binding, Exchange, Queue
from rabbitdelay.engine import lifetime
from rabbitdelay.engine.wire import (
    Channel,
    Closed,
    Confirm,
    Link,
    OnInbound,
    Owner,
    Returned,
    Then,
    nothing,
)
from rabbitdelay.errors import ConnectionFailed
from rabbitdelay.sync import driver_errors

# Without this, a program that set up no logging gets pika's tracebacks on its terminal whenever
# a connection is refused. Handlers that the program did set up still get them.
logging.getLogger("pika").addHandler(logging.NullHandler())

RECEIVE_BYTES = 64 * 1024


class ThreadChannel:
    """A channel of pika's."""

    def __init__(self, channel: PikaChannel) -> None:
        self._channel = channel
        self.number: int = channel.channel_number

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._channel.is_open

    def on_closed(self, closed: Callable[[Channel, Closed], None]) -> None:
        """Call this when the broker closes it."""

        def told(_channel: PikaChannel, error: Exception) -> None:
            if isinstance(error, pika_errors.ChannelClosedByBroker):
                closed(self, Closed(error.reply_code, error.reply_text))

        self._channel.add_on_close_callback(told)

    def on_cancelled(self, cancelled: Callable[[str], None]) -> None:
        """Call this when the broker cancels a consumer."""
        self._channel.add_on_cancel_callback(lambda frame: cancelled(frame.method.consumer_tag))

    def qos(self, prefetch: int) -> None:
        """Let so many messages be unacked."""
        self._channel.basic_qos(prefetch_count=prefetch)

    def consume(self, queue: str, arguments: Mapping[str, Any], consuming: Then) -> str:
        """Consume a queue."""
        # pika is never told of a delivery: it is read before pika sees it.
        return self._channel.basic_consume(
            queue, nothing, arguments=dict(arguments), callback=lambda _: consuming()
        )

    def cancel(self, tag: str, cancelled: Then = nothing) -> None:
        """Consume no more."""
        self._channel.basic_cancel(tag, callback=lambda _: cancelled())

    def count(self, queue: str, counted: Callable[[int, int], None]) -> None:
        """Count what is in a queue."""

        def answered(frame: Any) -> None:  # noqa: ANN401 - pika's method frame
            counted(frame.method.message_count, frame.method.consumer_count)

        self._channel.queue_declare(queue, passive=True, callback=answered)

    def look(self, exchange: str, seen: Then) -> None:
        """Look for an exchange."""
        self._channel.exchange_declare(exchange, passive=True, callback=lambda _: seen())

    def declare(self, declaration: Exchange | Queue | Binding, declared: Then) -> None:
        """Make something."""
        channel = self._channel

        def answered(_frame: object) -> None:
            declared()

        match declaration:
            case Exchange(name, type_, arguments):
                channel.exchange_declare(
                    name,
                    ExchangeType(type_),
                    durable=True,
                    arguments=dict(arguments),
                    callback=answered,
                )
            case Queue(name, arguments):
                channel.queue_declare(
                    name, durable=True, arguments=dict(arguments), callback=answered
                )
            case Binding(source, destination, "queue", key):
                channel.queue_bind(destination, source, key, callback=answered)
            case Binding(source, destination, _, key):
                channel.exchange_bind(destination, source, key, callback=answered)

    def purge(self, queue: str, purged: Callable[[int], None]) -> None:
        """Empty a queue."""

        def answered(frame: Any) -> None:  # noqa: ANN401 - pika's method frame
            purged(frame.method.message_count)

        self._channel.queue_purge(queue, callback=answered)

    def confirm(
        self,
        confirmed: Callable[[Confirm], None],
        returned: Callable[[Returned], None],
        then: Then,
    ) -> None:
        """Let the broker confirm what is published."""

        def on_confirm(frame: Any) -> None:  # noqa: ANN401 - pika's method frame
            method = frame.method
            is_taken = method.NAME == "Basic.Ack"
            confirmed(Confirm(method.delivery_tag, method.multiple, is_taken))

        def on_return(_channel: object, method: Any, properties: Any, _body: bytes) -> None:  # noqa: ANN401 - pika's
            where = (method.exchange, method.routing_key, method.reply_text)
            returned(Returned(*where, properties.message_id, properties.headers or {}))

        self._channel.add_on_return_callback(on_return)
        self._channel.confirm_delivery(on_confirm, callback=lambda _: then())

    def close(self) -> None:
        """Close it."""
        self._channel.close()


class ThreadLink(pika.SelectConnection):
    """A SelectConnection that sends frames and reads deliveries past pika's own objects."""

    _deliveries: Deliveries | None = None

    @property
    def frame_max(self) -> int:
        """The largest frame, as agreed with the broker."""
        assert self.params is not None
        return self.params.frame_max

    def send_frames(self, data: bytes) -> None:
        """Send whole frames. pika's channels keep no count of what is sent on them."""
        self._adapter_emit_data(data)

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Hand over messages; `on_read` is called after all that came at once."""
        self._deliveries = Deliveries()
        # pika reads 4 KiB at a time: eight small jobs, and the threads are woken for each piece.
        setattr(self._transport, "_MAX_RECV_BYTES", RECEIVE_BYTES)  # noqa: B010 - pika's own
        self._on_inbound = on_inbound
        self._on_read = on_read

    def _on_data_available(self, data_in: bytes) -> None:
        if self._deliveries is None:
            super()._on_data_available(data_in)
            return
        self.bytes_received += len(data_in)  # else its heartbeat takes a busy broker for dead
        for found in self._deliveries.feed(data_in):
            if isinstance(found, Other):
                super()._on_data_available(found.frame)
            else:
                self._on_inbound(found)
        self._on_read()

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Call this when the broker blocks who publishes, and when it does no more."""
        self.add_on_connection_blocked_callback(lambda _, frame: blocked(frame.method.reason))
        self.add_on_connection_unblocked_callback(lambda *_: blocked(None))

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel."""
        self.channel(on_open_callback=lambda channel: opened(ThreadChannel(channel)))


class ThreadWire:
    """A thread of its own, with pika's I/O loop."""

    def __init__(self, name: str) -> None:
        self.ended: Future[None] = Future()
        self._loop = IOLoop()
        self._link: ThreadLink | None = None
        self._owner: Owner | None = None
        self._ending = threading.RLock()  # a finalizer may call while its own thread does
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # From any thread

    def start(self, owner: Owner, first: Then) -> None:
        """Start the thread."""
        self._owner = owner
        lifetime.opened(self)
        self._loop.add_callback(first)
        self._thread.start()

    def call(self, function: Then) -> bool:
        """Run a function on the thread; False when that has ended."""
        with self._ending:
            if not self._has_ended:
                self._loop.add_callback_threadsafe(function)
            return not self._has_ended

    def may_wait(self) -> bool:
        """Whether the caller is on any other thread."""
        return threading.current_thread() is not self._thread

    def flush_at_exit(self, seconds: float) -> None:
        """The program ends: wait for what is on its way."""
        assert self._owner is not None
        self._owner.close_soon(seconds)
        if self.may_wait():
            self._thread.join(seconds + lifetime.CLOSE_SECONDS)

    def abandon_in_child(self) -> None:
        """This is a forked child: the owner lets go of the parent's connection."""
        assert self._owner is not None
        self._owner.abandon()

    # On the thread

    def call_later(self, seconds: float, function: Then) -> object:
        """Run a function after a while."""
        return self._loop.call_later(seconds, function)

    def cancel(self, timer: object) -> None:
        """Do not run it after all."""
        self._loop.remove_timeout(timer)  # type: ignore[arg-type] # its own handle, a private type

    def connect(
        self,
        address: Address,
        opened: Callable[[Link], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        """Connect, and tell how that ends."""

        def lost(_link: Connection, error: str | BaseException) -> None:
            self._link = None
            failed(driver_errors.connection_error(_exception(error), address))

        try:
            parameters = connection_parameters(address)
        except Exception as error:  # noqa: BLE001 - reported to whoever waits for the connection
            failed(driver_errors.connection_error(error, address))
            return
        link = self._link = ThreadLink(
            parameters,
            on_open_callback=lambda _: opened(link),
            on_open_error_callback=lost,
            on_close_callback=lost,
            custom_ioloop=self._loop,
        )

    def stop(self) -> None:
        """Close the connection, also one that is being made, and end the thread."""
        link = self._link
        if link is None or link.is_closing or link.is_closed:
            self._loop.stop()
        else:
            link.close()

    def abandon(self) -> None:
        """Let go of the parent's socket without a word on it."""
        transport = getattr(self._link, "_transport", None)
        sock = getattr(transport, "_sock", None)
        if sock is not None:
            sock.close()

    def _run(self) -> None:
        try:
            self._loop.start()
        finally:
            with self._ending:
                self._has_ended = True
                self._loop.close()
            lifetime.closed(self)
            assert self._owner is not None
            self._owner.connection_closed()
            self.ended.set_result(None)


def connection_parameters(address: Address) -> ConnectionParameters:
    """Return pika's form of an address."""
    context = address.tls_context()
    return ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.user, address.password),
        heartbeat=address.heartbeat_seconds,
        socket_timeout=address.connection_timeout_seconds,
        stack_timeout=address.connection_timeout_seconds,
        ssl_options=SSLOptions(context, address.server_name or address.host) if context else None,
        client_properties={"connection_name": "rabbitdelay", "product": "rabbitdelay"},
    )


def _exception(error: str | BaseException) -> BaseException:
    return error if isinstance(error, BaseException) else ConnectionFailed(error)
