"""The connection: one I/O thread, and a connection on it that comes back when it is lost."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import pika
from pika.adapters.select_connection import IOLoop
from pika.connection import Connection, ConnectionParameters, SSLOptions

from rabbitdelay.address import Address
from rabbitdelay.core import backoff
from rabbitdelay.core.deliveries import Deliveries, Delivery, GetEmpty, Other
from rabbitdelay.errors import BrokerUnreachable, ConnectionFailed
from rabbitdelay.sync import driver_errors

logger = logging.getLogger("rabbitdelay")
# Without this, a program that set up no logging gets pika's tracebacks on its terminal whenever
# a connection is refused. Handlers that the program did set up still get them.
logging.getLogger("pika").addHandler(logging.NullHandler())


RECEIVE_BYTES = 64 * 1024
OnInbound = Callable[[Delivery | GetEmpty], None]


class FrameConnection(pika.SelectConnection):
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

    def read_deliveries(self, on_inbound: OnInbound, on_read: Callable[[], None]) -> None:
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


class Owner(Protocol):
    """Who is told what happens to the connection, on the I/O thread."""

    def connection_opened(self, connection: FrameConnection) -> None:
        """There is a connection, with nothing on it yet."""

    def connection_failed(self, error: ConnectionFailed) -> None:
        """An attempt failed or the connection was lost; another attempt will follow."""

    def connection_closed(self) -> None:
        """It was closed on purpose, and the thread ends."""


class Connector:
    """Keeps a connection open: tries one address after the other, with backoff and jitter."""

    def __init__(self, addresses: Sequence[Address], name: str, owner: Owner) -> None:
        for address in addresses:
            address.tls_context()  # a bad one is an error of the caller, at once
        self.loop = IOLoop()
        self.connection: FrameConnection | None = None
        self._addresses = addresses
        self._owner = owner
        self._attempts = 0
        self._failures = 0
        self._opened_once = False
        self._ending = threading.RLock()  # a finalizer may call while its own thread does
        self._ended = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def address(self) -> Address:
        """The address of the current attempt."""
        return self._addresses[self._attempts % len(self._addresses)]

    # From any thread

    def start(self) -> None:
        """Start the thread and the first attempt."""
        self._thread.start()

    def call(self, function: Callable[[], None]) -> bool:
        """Run a function on the I/O thread; False when that has ended."""
        with self._ending:
            if not self._ended:
                self.loop.add_callback_threadsafe(function)
            return not self._ended

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended."""
        return self._ended

    def is_current_thread(self) -> bool:
        """Whether the caller is on the I/O thread."""
        return threading.current_thread() is self._thread

    # On the I/O thread

    def call_later(self, seconds: float, function: Callable[[], None]) -> object:
        """Run a function on the I/O thread after a while; return what cancels it."""
        return self.loop.call_later(seconds, function)

    def cancel(self, timer: object) -> None:
        """Do not run it after all."""
        self.loop.remove_timeout(timer)  # type: ignore[arg-type] # its own handle, a private type

    def close(self) -> None:
        """Close the connection, also one that is being made, and end the thread."""
        self._closing = True
        connection = self.connection
        if connection is None or connection.is_closing or connection.is_closed:
            self.loop.stop()
        else:
            connection.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's socket without a word on it."""
        transport = getattr(self.connection, "_transport", None)
        sock = getattr(transport, "_sock", None)
        if sock is not None:
            sock.close()

    def _run(self) -> None:
        self.loop.add_callback(self._connect)
        try:
            self.loop.start()
        finally:
            with self._ending:
                self._ended = True
                self.loop.close()
            self._owner.connection_closed()

    def _connect(self) -> None:
        if self._closing:
            self.loop.stop()
            return
        try:
            parameters = connection_parameters(self.address)
        except Exception as error:  # noqa: BLE001 - reported to whoever waits for the connection
            self._failed(error)
            return
        self.connection = FrameConnection(
            parameters,
            on_open_callback=self._opened,
            on_open_error_callback=lambda _, error: self._failed(_exception(error)),
            on_close_callback=lambda _, error: self._failed(error),
            custom_ioloop=self.loop,
        )

    def _opened(self, _connection: Connection) -> None:
        level = logging.WARNING if self._failures and self._opened_once else logging.INFO
        logger.log(level, "%s: connected", self.address)
        self._failures = 0
        self._opened_once = True
        assert self.connection is not None
        self._owner.connection_opened(self.connection)

    def _failed(self, error: BaseException) -> None:
        address = self.address
        self.connection = None
        if self._closing:
            self.loop.stop()
            return
        ours = driver_errors.connection_error(error, address)
        pause = backoff.seconds(self._failures, random.random())  # noqa: S311 - jitter
        self._attempts += 1
        self._failures += 1
        level = logging.WARNING if self._failures == 1 and self._opened_once else logging.INFO
        logger.log(level, "%s; next attempt in %.1f s", ours, pause)
        self._owner.connection_failed(ours)
        self.loop.call_later(pause, self._connect)


class FirstConnection:
    """Whether there ever was a connection, for those who wait for the first one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.made = False
        self.error: ConnectionFailed | None = None
        """What is in the way now; None when connected."""

    def opened(self) -> bool:
        """There is a connection; say whether it is one that came back."""
        with self._changed:
            came_back = self.made and self.error is not None
            self.made, self.error = True, None
            self._changed.notify_all()
        return came_back

    def failed(self, error: ConnectionFailed) -> None:
        """An attempt failed, or the connection was lost."""
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def wait(self, timeout: float) -> None:
        """Wait for the first connection; raise what stands in its way."""
        deadline = time.monotonic() + timeout
        with self._changed:
            # At least one attempt, which has a timeout of its own.
            self._changed.wait_for(lambda: self.made or self.error is not None)
            while not self.made:
                rest = deadline - time.monotonic()
                hopeless = not isinstance(self.error, BrokerUnreachable)
                if self.error is not None and (hopeless or rest <= 0):
                    raise self.error
                self._changed.wait(max(rest, 0))


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
