"""The status of a gateway: a redrawn line on a terminal, JSON lines elsewhere."""

import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rabbitdelay.cli.context import Settings
from rabbitdelay.cli.output.worker_log import JsonFormatter, LineFormatter, json_log, logging_to
from rabbitdelay.cli.output.worker_status import Above

if TYPE_CHECKING:
    from rabbitdelay.gateway.gateway import GatewayStats
    from rabbitdelay.gateway.server import GatewayServer

INTERVAL_SECONDS = 0.5
ACCESS_LOGGER = "rabbitdelay.gateway.access"
_URL = re.compile(r"^amqps?://\S+: ")
logger = logging.getLogger("rabbitdelay")


@contextmanager
def starting() -> Iterator[None]:
    """Log warnings while a gateway is set up: lines on a terminal, JSON elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    handler.setFormatter(LineFormatter() if is_terminal else JsonFormatter())
    with logging_to(handler, logging.WARNING):
        yield


@contextmanager
def reporting(
    settings: Settings, server: "GatewayServer", *, access_log: bool = True
) -> Iterator[None]:
    """Show the gateway's status on a terminal, or log JSON lines elsewhere.

    The access log, which has lines of JSON of its own, is never shown on a terminal.
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    with _uvicorn_in_our_log(), _access_log(shown=access_log and not is_terminal):
        if is_terminal:
            with _live_status(settings, server):
                yield
            return
        with json_log(every_job=settings.verbose):
            logger.info("serving: %s (namespace %s)", server.url, settings.namespace)
            yield
            logger.info("stopped: %s (%s requests)", server.url, f"{server.requests:,}")


@contextmanager
def _uvicorn_in_our_log() -> Iterator[None]:
    """Send the warnings of uvicorn to our log; its other messages repeat ours."""
    theirs = logging.getLogger("uvicorn")
    before = theirs.parent, theirs.level
    theirs.parent = logger
    theirs.setLevel(logging.WARNING)
    try:
        yield
    finally:
        theirs.parent, theirs.level = before


@contextmanager
def _access_log(*, shown: bool) -> Iterator[None]:
    """Print the lines of the access log as they are, or switch it off."""
    theirs = logging.getLogger(ACCESS_LOGGER)
    handler = logging.StreamHandler(sys.stderr)
    theirs.propagate = False
    theirs.setLevel(logging.INFO if shown else logging.CRITICAL)
    theirs.addHandler(handler)
    try:
        yield
    finally:
        theirs.removeHandler(handler)
        theirs.setLevel(logging.NOTSET)
        theirs.propagate = True


@contextmanager
def _live_status(settings: Settings, server: "GatewayServer") -> Iterator[None]:
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    over = threading.Event()
    console.print(f"Serving {server.url} (namespace {settings.namespace}); Ctrl-C to stop")
    with (
        Live(console=console, auto_refresh=False, transient=True) as live,
        logging_to(Above(console), logging.WARNING),
    ):
        drawing = threading.Thread(target=_draw, args=(server, live, over), daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join(2)
    console.print(f"{server.requests:,} requests")


def _draw(server: "GatewayServer", live: Live, over: threading.Event) -> None:
    """Redraw the status line periodically."""
    seen, since = 0, time.monotonic()
    while not over.wait(INTERVAL_SECONDS):
        now, requests = time.monotonic(), server.requests
        rate = (requests - seen) / (now - since)
        seen, since = requests, now
        stats = server.stats()
        if stats is not None:
            live.update(status_line(stats, requests, rate), refresh=True)


def status_line(stats: "GatewayStats", requests: int, rate: float) -> Text:
    """Return the status line with requests, clients that wait, leases and the broker's state."""
    line = Text.assemble(
        ("requests ", "dim"),
        f"{requests:,}  {rate:,.0f}/s",
        ("  waiting ", "dim"),
        f"{stats.waiting:,}",
        ("  leases ", "dim"),
        f"{stats.leases:,}",
        ("  broker ", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    if stats.problem is None:
        line.append("connected")
    else:
        line.append(_URL.sub("", stats.problem), "yellow")
    return line.append("  stopping", "yellow") if stats.stopping else line
