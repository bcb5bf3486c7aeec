"""Send one HTTP POST request to an already resolved address, within a time limit.

A socket timeout applies to a single read, so a server that sends a byte now and then never exceeds
it. The whole exchange therefore has a cutoff that shuts the connection down from another thread.
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
from rabbitdelay.actions.webhook.status import WebhookResponse
from rabbitdelay.actions.webhook.url import WebhookUrl

CONNECT_SECONDS = 10.0
MAX_READ_BYTES = 65_536


class Cutoff:
    """Shuts down the connection of an exchange at a deadline or when `cut` is called."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self._timer = threading.Timer(seconds, self.cut)
        self._timer.daemon = True
        self.is_cut = False

    @property
    def seconds_left(self) -> float:
        """Seconds left for the exchange; never 0, because sockets treat 0 as non-blocking."""
        return 0.001 if self.is_cut else max(0.001, self._deadline - time.monotonic())

    def guard(self, connection: socket.socket) -> None:
        """Shut this connection down at the deadline, or now if it has passed."""
        with self._lock:
            # Duplicated, because the other thread may close its handle and free the descriptor.
            self._handle = connection.dup()
            if self.is_cut:
                _shut_down(self._handle)

    def cut(self) -> None:
        """Shut the connection down now, from any thread."""
        with self._lock:
            self.is_cut = True
            if self._handle is not None:
                _shut_down(self._handle)

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
    url: WebhookUrl,
    addresses: Sequence[IPAddress],
    headers: Mapping[str, str],
    payload: bytes,
    *,
    cutoff: Cutoff,
    tls_context: ssl.SSLContext,
) -> WebhookResponse:
    """Post to one of these addresses; raise OSError or HTTPException without a response."""
    with _connected(url, addresses, cutoff, tls_context) as connection:
        # The server may have responded and closed the connection without reading the whole body.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", url.path, payload, dict(headers))
        with connection.getresponse() as response:
            if cutoff.is_cut:  # http.client treats truncated headers as complete
                raise TimeoutError("the response was cut off")
            return WebhookResponse(
                response.status,
                response.getheader("Retry-After"),
                response.getheader("Location"),
                _beginning(response),
            )


@contextmanager
def _connected(
    url: WebhookUrl, addresses: Sequence[IPAddress], cutoff: Cutoff, tls_context: ssl.SSLContext
) -> Iterator[HTTPConnection]:
    plain = _connect(addresses, url.port, cutoff)
    with plain:
        cutoff.guard(plain)
        plain.settimeout(None)  # from here on, only the cutoff limits the exchange
        with _secured(plain, url, tls_context) as stream:
            connection = HTTPConnection(url.host, url.port)
            connection.sock = stream
            connection.auto_open = 0  # http.client would resolve the name again
            yield connection


def _connect(addresses: Sequence[IPAddress], port: int, cutoff: Cutoff) -> socket.socket:
    """Connect to the first address that accepts; each gets an equal share of the time."""
    deadline = time.monotonic() + min(CONNECT_SECONDS, cutoff.seconds_left)
    failure: OSError = OSError("the host name has no address")
    for position, address in enumerate(addresses):
        rest = max(0.001, deadline - time.monotonic())
        try:
            return socket.create_connection(
                (str(address), port), timeout=rest / (len(addresses) - position)
            )
        except OSError as error:
            failure = error
    raise failure


def _secured(plain: socket.socket, url: WebhookUrl, tls_context: ssl.SSLContext) -> socket.socket:
    """Wrap the connection in TLS for https; the certificate is checked against the host name."""
    if url.scheme == "http":
        return plain
    return tls_context.wrap_socket(plain, server_hostname=url.host)


def _beginning(response: HTTPResponse) -> bytes:
    """Return the start of the body, ignoring errors because the status is already known."""
    beginning = b""
    with suppress(OSError, HTTPException):
        while chunk := response.read1(MAX_READ_BYTES - len(beginning)):
            beginning += chunk
    return beginning


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # no longer connected
        connection.shutdown(socket.SHUT_RDWR)
