"""The server: runs the gateway with uvicorn until a signal ends it."""

import asyncio
import errno
import os
import signal
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.app import GatewayApp
from rabbitdelay.gateway.gateway import GatewayStats
from rabbitdelay.gateway.http.connection import WatchedConnection

DEFAULT_PORT = 8437
BACKLOG = 2048
LAST_ANSWERS_SECONDS = 5
"""Seconds that answers in progress may take after the grace period."""
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where a gateway listens.

    Raises:
        InvalidConfiguration: Only one of certificate and key is given, or they cannot be used.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidConfiguration("give both a TLS certificate and its key, or neither")
        if self.tls_cert is not None:
            _check_certificate(self.tls_cert, self.tls_key)


class GatewayServer(uvicorn.Server):
    """Serves until SIGTERM or Ctrl-C. Leases may then be settled for the grace period."""

    def __init__(self, app: GatewayApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._socket = listen(settings)
        self.url = _url(settings, *self._socket.getsockname()[:2])
        """The URL of the gateway."""
        self._ending: asyncio.Task[None] | None = None
        self.was_stopped_at_once = False
        super().__init__(_config(app, settings))

    @property
    def requests(self) -> int:
        """Number of requests so far."""
        return self.server_state.total_requests

    def stats(self) -> GatewayStats | None:
        """Return what the gateway does now; None unless it is running. From any thread."""
        return self._app.stats()

    def run_until_stopped(self) -> None:
        """Serve until a signal ends the server."""
        asyncio.run(self.serve([self._socket]))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; stop at once on Ctrl-C if that has begun."""
        del frame
        if not self.started:
            self.should_exit = True
        elif self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        elif sig == signal.SIGINT:
            self.was_stopped_at_once = True
            self.should_exit = self.force_exit = True

    async def _end(self) -> None:
        """Stop handing out jobs, and exit when all leases are settled or the grace is over."""
        gateway, loop = self._app.gateway, asyncio.get_running_loop()
        gateway.stop_handing_out()
        deadline = loop.time() + self._app.settings.grace
        while gateway.stats().leases and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        self.should_exit = True


def listen(settings: ServerSettings) -> socket.socket:
    """Return a listening socket; raise OSError with a text if the address cannot be used."""
    where = f"{settings.host}:{settings.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise OSError(f"cannot listen on {where}: {error.strerror}") from None
    except OSError as error:
        text = os.strerror(error.errno or 0)
        if error.errno == errno.EADDRINUSE:
            text = "another program uses this port; choose another one with --port"
        raise OSError(f"cannot listen on {where}: {text}") from None


def _url(settings: ServerSettings, host: str, port: int) -> str:
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _check_certificate(certificate: Path, key: Path | None) -> None:
    """Raise InvalidConfiguration if a certificate cannot be used with its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidConfiguration(
            f"cannot use the TLS certificate {certificate} with the key {key}: {text}"
        ) from None


def _config(app: GatewayApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=WatchedConnection,  # h11, which is strict and limits the size of headers
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=LAST_ANSWERS_SECONDS,
    )
