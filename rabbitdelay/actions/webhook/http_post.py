"""Posting: one HTTP request to an address that is already known, within a time.

A timeout on a socket is the time of one read, and a server that sends a byte now and then never
meets it. So the whole exchange has a cutoff, which breaks the connection from another thread.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import TracebackType
from typing import Self

from rabbitdelay.actions.webhook.allow_list import IPAddress
from rabbitdelay.actions.webhook.status import Answer
from rabbitdelay.actions.webhook.url import Target

CONNECT_SECONDS = 10.0
MAX_READ_BYTES = 65_536


class Cutoff:
    """The end of an exchange, at a moment or sooner: when it comes, the connection breaks."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self._timer = threading.Timer(seconds, self.cut)
        self._timer.daemon = True
        self.is_cut = False

    @property
    def seconds_left(self) -> float:
        """How long the exchange may still take; never 0, which sockets take for no wait at all."""
        return 0.001 if self.is_cut else max(0.001, self._deadline - time.monotonic())

    def hold(self, connection: socket.socket) -> None:
        """Break this connection when the time comes, or now if it has come."""
        with self._lock:
            # A handle of our own: closing theirs, on another thread, frees its number for others.
            self._handle = connection.dup()
            if self.is_cut:
                _break(self._handle)

    def cut(self) -> None:
        """Break the connection now, from any thread."""
        with self._lock:
            self.is_cut = True
            if self._handle is not None:
                _break(self._handle)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None


def post(
    target: Target,
    addresses: Sequence[IPAddress],
    headers: Mapping[str, str],
    payload: bytes,
    *,
    cutoff: Cutoff,
    tls_context: ssl.SSLContext,
) -> Answer:
    """Post to one of these addresses and return the answer; OSError or HTTPException without."""
    with _connected(target, addresses, cutoff, tls_context) as connection:
        # It may have answered, and closed, without reading it all.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", target.path, payload, dict(headers))
        with connection.getresponse() as response:
            if cutoff.is_cut:  # http.client takes headers that break off for whole ones
                raise TimeoutError("the answer broke off")
            return Answer(
                response.status,
                response.getheader("Retry-After"),
                response.getheader("Location"),
                _beginning(response),
            )


@contextmanager
def _connected(
    target: Target, addresses: Sequence[IPAddress], cutoff: Cutoff, tls_context: ssl.SSLContext
) -> Iterator[HTTPConnection]:
    plain = _connect(addresses, target.port, cutoff)
    with plain:
        cutoff.hold(plain)
        plain.settimeout(None)  # from here on it is the cutoff that ends it
        with _secured(plain, target, tls_context) as stream:
            connection = HTTPConnection(target.host, target.port)
            connection.sock = stream
            connection.auto_open = 0  # it would look the name up again
            yield connection


def _connect(addresses: Sequence[IPAddress], port: int, cutoff: Cutoff) -> socket.socket:
    """Connect to the first address that answers; each gets its share of the time."""
    deadline = time.monotonic() + min(CONNECT_SECONDS, cutoff.seconds_left)
    failure: OSError = OSError("it has no address")
    for position, address in enumerate(addresses):
        rest = max(0.001, deadline - time.monotonic())
        try:
            return socket.create_connection(
                (str(address), port), timeout=rest / (len(addresses) - position)
            )
        except OSError as error:
            failure = error
    raise failure


def _secured(plain: socket.socket, target: Target, tls_context: ssl.SSLContext) -> socket.socket:
    """The same connection, with TLS when the target asks for it; its name is what is checked."""
    if target.scheme == "http":
        return plain
    return tls_context.wrap_socket(plain, server_hostname=target.host)


def _beginning(response: HTTPResponse) -> bytes:
    """As much of the body as comes, within bounds: the status has been said, whatever follows."""
    beginning = b""
    with suppress(OSError, HTTPException):
        while chunk := response.read1(MAX_READ_BYTES - len(beginning)):
            beginning += chunk
    return beginning


def _break(connection: socket.socket) -> None:
    with suppress(OSError):  # it is not connected any more
        connection.shutdown(socket.SHUT_RDWR)
