"""The server: runs the gateway with uvicorn until a signal ends it."""

import asyncio
import errno
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from rabbitdelay.gateway.app import GatewayApp

BACKLOG = 2048
LAST_ANSWERS_SECONDS = 5
"""Seconds that answers in progress may take after the grace period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where a gateway listens."""

    host: str = "127.0.0.1"
    port: int = 8437
    tls_cert: Path | None = None
    tls_key: Path | None = None


class GatewayServer(uvicorn.Server):
    """Serves until SIGTERM or Ctrl-C; leases may then be settled for the grace period."""

    def __init__(self, app: GatewayApp, settings: ServerSettings) -> None:
        self._app = app
        self._ending: asyncio.Task[None] | None = None
        self._stopped_at_once = False
        super().__init__(_config(app, settings))

    @property
    def was_stopped_at_once(self) -> bool:
        """Whether a second signal ended the grace period."""
        return self._stopped_at_once

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; stop at once on the second Ctrl-C."""
        del frame
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        elif sig == signal.SIGINT:
            self._stopped_at_once = True
            self.should_exit = self.force_exit = True

    async def _end(self) -> None:
        """Stop handing out jobs, and exit when all leases are settled or the grace is over."""
        gateway = self._app.gateway
        gateway.stop_handing_out()
        deadline = asyncio.get_running_loop().time() + self._app.settings.grace
        while len(gateway.held) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self.should_exit = True


def listen(settings: ServerSettings) -> socket.socket:
    """Return a listening socket; raise OSError if the address cannot be used."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            raise OSError(
                f"cannot listen on {where}: another program uses this port; choose another one "
                "with --port"
            ) from None
        text = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise OSError(f"cannot listen on {where}: {text}") from None


def _config(app: GatewayApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
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
