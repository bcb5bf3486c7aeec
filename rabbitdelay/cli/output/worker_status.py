"""The status of a worker: a redrawn line on the terminal, with warnings above it."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rabbitdelay.cli.context import AnyWorker, Settings
from rabbitdelay.cli.output.worker_log import LineFormatter, logging_to
from rabbitdelay.core.work.stats import WorkerCounts
from rabbitdelay.engine.work.base_worker import WorkerStats
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.sync.client import Client

INTERVAL_SECONDS = 0.5
COUNT_SECONDS = 2.0
"""Seconds that the broker may take to count the jobs of a topic."""


class Above(logging.Handler):
    """Prints log lines above the status line."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record."""
        style = "red" if record.levelno >= logging.ERROR else "yellow"
        self._console.print(Text(self.format(record), style))


@contextmanager
def live_status(settings: Settings, worker: AnyWorker, topics: Sequence[str]) -> Iterator[None]:
    """Show a worker's status line inside the block, and its totals at the end."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    over = threading.Event()
    with (
        Live(console=console, auto_refresh=False, transient=True) as live,
        logging_to(Above(console), logging.WARNING),
    ):
        arguments = (settings, worker, topics, live, over)
        drawing = threading.Thread(target=_draw, args=arguments, daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join(2)
    if (stats := worker.last_stats) is not None:
        console.print(summary(stats))


def _draw(
    settings: Settings, worker: AnyWorker, topics: Sequence[str], live: Live, over: threading.Event
) -> None:
    """Redraw the status line periodically, and reconnect if the connection is lost."""
    while not over.is_set():
        try:
            with settings.observer(COUNT_SECONDS) as client:
                while not over.wait(INTERVAL_SECONDS):
                    _show(worker, live, f"{_ready(client, topics):,}")
        except RabbitDelayError:
            _show(worker, live, "? (no connection)")
            over.wait(INTERVAL_SECONDS)


def _ready(client: Client, topics: Sequence[str]) -> int:
    counts = map(client.count, topics)
    return sum(count.ready or 0 for count in counts if count is not None)


def _show(worker: AnyWorker, live: Live, ready: str) -> None:
    stats = worker.last_stats
    if stats is not None:
        live.update(status_line(stats, ready), refresh=True)


def status_line(stats: WorkerStats, ready: str) -> Text:
    """Return the status line with job counts, throughput and lateness."""
    counts = stats.counts
    line = Text.assemble(
        ("ready ", "dim"),
        ready,
        ("  reserved ", "dim"),
        f"{stats.running:,}  {counts.finished_per_second:,.0f}/s",
        *_lateness(counts),
        ("  done ", "dim"),
        f"{counts.finished:,}",
        no_wrap=True,
        overflow="ellipsis",
    )
    if counts.deleted:
        line.append("  deleted ", "dim").append(f"{counts.deleted:,}")
    for count, name in ((counts.buried, "buried"), (stats.lost_threads, "lost threads")):
        if count:
            line.append(f"  {name} {count:,}", "yellow")
    return line


def summary(stats: WorkerStats) -> str:
    """Return the worker's totals as one line."""
    counts = stats.counts
    totals = (
        f"{counts.finished:,} finished, {counts.released:,} released, {counts.buried:,} buried, "
        f"{counts.deleted:,} deleted"
    )
    if not counts.finished:
        return totals
    p50, p99 = counts.lateness_p50_ms, counts.lateness_p99_ms
    return f"{totals}; late p50 {p50:,.0f} ms, p99 {p99:,.0f} ms"


def _lateness(counts: WorkerCounts) -> Iterator[str | tuple[str, str]]:
    """Yield the lateness of the finished jobs; nothing before the first one."""
    if counts.finished:
        yield ("  late p50 ", "dim")
        yield f"{counts.lateness_p50_ms:,.0f}"
        yield (" p99 ", "dim")
        yield f"{counts.lateness_p99_ms:,.0f} ms"
