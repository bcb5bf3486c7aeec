"""The demo's output, live on a terminal or as plain lines in a file."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rabbitdelay.core.topology import ladder
from rabbitdelay.demo.orders import Order
from rabbitdelay.demo.scoreboard import Arrival, Scoreboard

_BLOCKS = " ▁▂▃▄▅▆▇█"
_TALLEST = 16
"""Number of jobs in a hold queue at which its block is full."""
_WIDTH = 78
_LATE_MS = 100
"""Lateness in milliseconds from which it is shown in yellow."""


class Display:
    """Shows the demo's progress as lines, and on a terminal with a live panel below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._zero_ms = 0.0

    def show_title(self) -> None:
        """Show the title and the introduction."""
        self.line(Text("rabbitdelay demo: closing unpaid orders", "bold cyan"))
        self.line(Text("━" * _WIDTH, "cyan"))
        self.line("A shop closes every order that is not paid in time. Each order puts one job:")
        self.line("close this order in N seconds unless it is paid. RabbitMQ delays the job.\n")

    @contextmanager
    def preparing(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal, or a line elsewhere, while a step takes its time."""
        if self._console.is_terminal:
            with self._console.status(text):
                yield
        else:
            self.line(f"… {text}")
            yield

    def line(self, text: str | Text) -> None:
        """Print a permanent line."""
        self._console.print(text)

    def done(self, text: str) -> None:
        """Print a line about a step that succeeded."""
        self.line(Text.assemble(("✔ ", "bold green"), text))

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Show the table's header, and on a terminal the live panel, while inside the block."""
        self._zero_ms = time.time_ns() / 1_000_000
        self.line("")
        self.line(Text(_columns("order", "delay", "due", "received", "late") + "outcome", "bold"))
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield

    def ordered(self, order: Order) -> None:
        """Show that a named customer placed an order."""
        if order.named:
            text = f"{order.label}: close in {_length(order.delay_ms)} unless paid"
            self.line(Text.assemble(("▸ ", "bold magenta"), (text, "magenta")))

    def arrived(self, order: Order | None, arrival: Arrival) -> None:
        """Show a job that was received."""
        line = _columns(
            order.label if order else arrival.id,
            _length(order.last_delay_ms) if order else "",
            self._seconds(arrival.due_ms),
            self._seconds(arrival.received_ms),
            f"{arrival.lateness_ms:.0f} ms",
        )
        style = "bold" if order and order.named else ""
        style = "yellow" if arrival.lateness_ms >= _LATE_MS else style
        self.line(Text(line, style).append_text(_outcome(arrival)))

    def changed(self, order: Order) -> None:
        """Show that a customer paid or got more time."""
        text = f"{order.label}: {order.change.value}"
        self.line(Text.assemble(("▸ ", "bold magenta"), (text, "magenta")))

    def did_not_run(self, order: Order, due_ms: int) -> None:
        """Show that a job did not run at its cancelled time."""
        line = _columns(order.label, _length(order.delay_ms), self._seconds(due_ms), "—", "—")
        self.line(Text(line, "bold").append(f"{order.change.name.lower()}: no run", "green"))

    def kicked(self, order: Order, reason: str) -> None:
        """Show that a buried job was kicked."""
        text = f"{order.label}: buried ({reason}); now kicked"
        self.line(Text.assemble(("▸ ", "bold magenta"), (text, "magenta")))

    def update(self, scoreboard: Scoreboard, hold_counts: Mapping[str, int]) -> None:
        """Redraw the panel."""
        if self._live is not None:
            self._live.update(_panel(scoreboard, hold_counts), refresh=True)

    def _seconds(self, unix_ms: float) -> str:
        return f"{(unix_ms - self._zero_ms) / 1000:.3f} s"


def _columns(label: str, delay: str, due: str, received: str, late: str) -> str:
    return f"{label:18}{delay:>7}{due:>11}{received:>11}{late:>8}  "


def _length(delay_ms: int) -> str:
    """Return a delay as text in one unit."""
    return f"{delay_ms} ms" if delay_ms < ladder.SECOND_MS else f"{delay_ms / 1000:g} s"


def _outcome(arrival: Arrival) -> Text:
    colors = {"paid": "green", "not paid": "red"}
    return Text(arrival.outcome, colors.get(arrival.outcome.partition(":")[0], "bold yellow"))


def _panel(scoreboard: Scoreboard, hold_counts: Mapping[str, int]) -> Panel:
    # Wrapped in a padding, because a bare bar does not end its line.
    bar = Padding(ProgressBar(scoreboard.expected, scoreboard.arrived, width=_WIDTH - 4), 0)
    title = f"{scoreboard.arrived} of {scoreboard.expected} jobs have arrived"
    pieces: list[RenderableType] = [bar, _hold_queues(hold_counts), _lateness(scoreboard)]
    return Panel(Group(*pieces), title=title, border_style="cyan", width=_WIDTH)


def _hold_queues(hold_counts: Mapping[str, int]) -> Table:
    """Return a table of the hold queues, each with its label, a block and its job count."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column()
    for _ in hold_counts:
        grid.add_column(justify="right", ratio=1)
    grid.add_row(Text("hold queue", "dim"), *(Text(label, "bold") for label in hold_counts))
    grid.add_row("", *(Text(_block(count) * 3, "cyan") for count in hold_counts.values()))
    grid.add_row(Text("waiting", "dim"), *(str(count) for count in hold_counts.values()))
    return grid


def _block(count: int) -> str:
    height = -(-min(count, _TALLEST) * (len(_BLOCKS) - 1) // _TALLEST)
    return _BLOCKS[height]


def _lateness(scoreboard: Scoreboard) -> Text:
    return Text.assemble(
        ("lateness  ", "dim"),
        f"p50 {scoreboard.percentile_ms(50):.0f} ms   ",
        f"p99 {scoreboard.percentile_ms(99):.0f} ms   ",
        f"max {scoreboard.percentile_ms(100):.0f} ms",
    )
