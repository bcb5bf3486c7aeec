"""The server: runs the gateway with uvicorn until a signal ends it."""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.access.exposure import is_loopback, require_protection
from rabbitdelay.gateway.app import GatewayApp
from rabbitdelay.gateway.gateway import GatewayStats
from rabbitdelay.gateway.http.connection import WatchedConnection
from rabbitdelay.gateway.http.slow_requests import ConnectionLimits, limited
from rabbitdelay.gateway.tls import Certificate

logger = logging.getLogger("rabbitdelay.gateway")

DEFAULT_PORT = 8437
BACKLOG = 2048
LAST_ANSWERS_SECONDS = 5
"""Seconds that answers in progress may take after the grace period."""
SPARE_FILES = 256
"""Open files in addition to connections: those to the broker, and connections to refuse."""
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where a gateway listens.

    Raises:
        InvalidConfiguration: Only one of certificate and key is given.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    """Whether other machines may connect without a token."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    reload: Callable[[], object] | None = None
    """Called on SIGHUP, such as to read the tokens again."""

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidConfiguration("give both a TLS certificate and its key, or neither")


class GatewayServer(uvicorn.Server):
    """Serves until SIGTERM or Ctrl-C. Leases may then be settled for the grace period."""

    def __init__(self, app: GatewayApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._certificate = _certificate(settings)
        self._socket = listen(settings, has_tokens=app.settings.tokens is not None)
        self.url = _url(settings, *self._socket.getsockname()[:2])
        """The URL of the gateway."""
        self._ending: asyncio.Task[None] | None = None
        self.was_stopped_at_once = False
        super().__init__(_config(app, settings))
        if self._certificate is not None:
            self.config.load()
            self.config.ssl = self._certificate.context

    @property
    def requests(self) -> int:
        """Number of requests so far."""
        return self.server_state.total_requests

    def stats(self) -> GatewayStats | None:
        """Return what the gateway does now; None unless it is running. From any thread."""
        return self._app.stats()

    def run_until_stopped(self) -> None:
        """Serve until a signal ends the server."""
        # The routes and their models are 88,000 objects that never become garbage. The collector
        # would stop the gateway for 30 ms each time it walks them, a fifth of the time of a batch.
        gc.freeze()
        asyncio.run(self.serve([self._socket]))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and to reload on SIGHUP if there is anything to reload.

        Otherwise SIGHUP ends the process, as when its terminal is closed.
        """
        _allow_files(self._settings.limits.max_connections + SPARE_FILES)
        await super().startup(sockets)
        if self._certificate is not None or self._settings.reload is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        if self._certificate is not None:
            self._certificate.reload()
        if self._settings.reload is not None:
            self._settings.reload()

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


def listen(settings: ServerSettings, *, has_tokens: bool) -> socket.socket:
    """Return a listening socket.

    Raises:
        InvalidConfiguration: Other machines could connect without a token.
        OSError: The address cannot be used; the text says why.
    """
    where = f"{settings.host}:{settings.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        _check_exposure(str(address[0]), settings, has_tokens=has_tokens)
        created = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        # Opened again, the socket knows its protocol, and so do those that it accepts. asyncio sets
        # TCP_NODELAY only then, and without it each body waited 40 ms for the ack of its headers.
        return socket.socket(fileno=created.detach())
    except socket.gaierror as error:
        raise OSError(f"cannot listen on {where}: {error.strerror}") from None
    except OSError as error:
        text = os.strerror(error.errno or 0)
        if error.errno == errno.EADDRINUSE:
            text = "another program uses this port; choose another one with --port"
        raise OSError(f"cannot listen on {where}: {text}") from None


def _allow_files(count: int) -> None:
    """Raise the limit of open files, which are mostly connections, as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < count:
        logger.warning(
            "connections: only %d files may be open, which is less than --max-connections needs "
            "(%d): raise `ulimit -n`, or lower --max-connections",
            most,
            count,
        )


def _url(settings: ServerSettings, host: str, port: int) -> str:
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _check_exposure(address: str, settings: ServerSettings, *, has_tokens: bool) -> None:
    require_protection(address, has_tokens=has_tokens, insecure=settings.insecure)
    if has_tokens and settings.tls_cert is None and not is_loopback(address):
        logger.warning(
            "tokens: sent unencrypted to %s: give --tls-cert, unless a proxy in front adds TLS",
            address,
        )


def _certificate(settings: ServerSettings) -> Certificate | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


def _config(app: GatewayApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=limited(WatchedConnection, settings.limits),
        h11_max_incomplete_event_size=settings.limits.max_header_bytes,
        timeout_keep_alive=settings.limits.keep_alive_seconds,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # X-Forwarded-For has whatever a caller writes there
        timeout_graceful_shutdown=LAST_ANSWERS_SECONDS,
    )
