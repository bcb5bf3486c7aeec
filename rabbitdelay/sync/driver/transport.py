"""The transport on pika: an I/O thread with one connection."""

import logging
import threading
from collections.abc import Callable

import pika
from pika.adapters.select_connection import IOLoop
from pika.connection import Connection as PikaConnection
from pika.connection import ConnectionParameters, SSLOptions

from rabbitdelay.address import Address
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Connection, Then, TransportOwner
from rabbitdelay.errors import ConnectionFailed
from rabbitdelay.sync.driver.connection import ThreadConnection
from rabbitdelay.sync.driver.errors import connection_error
from rabbitdelay.system_time import monotonic_seconds

# Without this, a program that has not configured logging gets pika's tracebacks on its terminal
# whenever a connection is refused. Handlers that the program has configured still get them.
logging.getLogger("pika").addHandler(logging.NullHandler())


class ThreadTransport:
    """A dedicated thread that runs pika's I/O loop."""

    def __init__(self, name: str) -> None:
        self.ended: Future[None] = Future()
        self._running: IOLoop | None = None
        self._connection: ThreadConnection | None = None
        self._owner: TransportOwner | None = None
        self._ending = threading.RLock()  # a finalizer may call while its thread holds the lock
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # Called from any thread

    def start(self, owner: TransportOwner, first: Then) -> None:
        """Start the thread by calling `first` on it."""
        self._owner = owner
        self._running = IOLoop()  # opens sockets, so it is not made before the start
        self._loop.add_callback(first)
        process_lifetime.opened(self)
        self._thread.start()

    def call(self, function: Then) -> bool:
        """Schedule a function on the thread; False if it has ended or was never started."""
        with self._ending:
            is_running = self._running is not None and not self._has_ended
            if is_running:
                self._loop.add_callback_threadsafe(function)
            return is_running

    def may_wait(self) -> bool:
        """Whether the caller is on another thread."""
        return threading.current_thread() is not self._thread

    def flush_at_exit(self, seconds: float) -> None:
        """Flush and close when the program exits, within the given time."""
        assert self._owner is not None
        self._owner.close_soon(seconds)
        if self.may_wait() and self._thread.is_alive():
            self._thread.join(seconds + process_lifetime.CLOSE_SECONDS)

    def abandon_in_child(self) -> None:
        """Make the owner drop its state in a forked child."""
        assert self._owner is not None
        self._owner.abandon()

    @property
    def _loop(self) -> IOLoop:
        assert self._running is not None
        return self._running

    # Called on the thread

    monotonic = staticmethod(monotonic_seconds)

    def call_later(self, seconds: float, function: Then) -> object:
        """Schedule a function after a delay; return a handle for `cancel`."""
        return self._loop.call_later(seconds, function)

    def call_sometime(self, seconds: float, function: Then) -> object:
        """Schedule a function that may be called late, which it is not here."""
        return self.call_later(seconds, function)

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later`."""
        self._loop.remove_timeout(timer)  # type: ignore[arg-type] # pika's own handle, a private type

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection], None],
        failed: Callable[[ConnectionFailed], None],
    ) -> None:
        """Connect; call `failed` once, when connecting fails or the connection is lost."""

        def lost(_connection: PikaConnection, error: str | BaseException) -> None:
            self._connection = None
            failed(connection_error(_exception(error), address))

        try:
            parameters = connection_parameters(address)
        except Exception as error:  # noqa: BLE001 - passed to `failed`
            failed(connection_error(error, address))
            return
        connection: ThreadConnection
        connection = self._connection = ThreadConnection(
            parameters,
            on_open_callback=lambda _: opened(connection),
            on_open_error_callback=lost,
            on_close_callback=lost,
            custom_ioloop=self._loop,
        )

    def stop(self) -> None:
        """Close the connection, even while it is opening, and end the thread."""
        connection = self._connection
        if connection is None or connection.is_closing or connection.is_closed:
            self._loop.stop()
        else:
            connection.close()

    def cut(self) -> None:
        """Drop a connection whose closing handshake the broker does not complete."""
        if self._connection is not None and not self._connection.is_closed:
            self._connection.cut()

    def abandon(self) -> None:
        """Close the parent's socket in a forked child, without sending anything on it."""
        if self._connection is not None:
            self._connection.close_socket()

    def _run(self) -> None:
        try:
            self._loop.start()
        finally:
            with self._ending:
                self._has_ended = True
                self._loop.close()
            process_lifetime.closed(self)
            assert self._owner is not None
            self._owner.connection_closed()
            self.ended.set_result(None)


def connection_parameters(address: Address) -> ConnectionParameters:
    """Return an address as pika's connection parameters."""
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
