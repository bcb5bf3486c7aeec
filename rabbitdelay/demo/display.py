"""The stage: what the audience sees, on a terminal or as plain lines in a file."""

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
"""So many jobs in a hold queue fill its block."""
_WIDTH = 78
_LATE_MS = 100
"""From here on lateness is shown in yellow."""


class Stage:
    """Shows the story as it goes: lines that stay, and on a terminal a panel below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._zero_ms = 0.0

    def raise_curtain(self) -> None:
        """Say what is to be seen."""
        self.say(Text("rabbitdelay: the order-close story", "bold cyan"))
        self.say(Text("━" * _WIDTH, "cyan"))
        self.say("A shop closes an order that is not paid in time. Each order puts one job:")
        self.say("close it in N seconds unless it is paid. The job waits in RabbitMQ alone.\n")

    @contextmanager
    def preparing(self, text: str) -> Iterator[None]:
        """A spinner while something takes its time; a line where there is no terminal."""
        if self._console.is_terminal:
            with self._console.status(text):
                yield
        else:
            self.say(f"… {text}")
            yield

    def say(self, text: str | Text) -> None:
        """A line that stays."""
        self._console.print(text)

    def done(self, text: str) -> None:
        """A line about something that worked."""
        self.say(Text.assemble(("✔ ", "bold green"), text))

    @contextmanager
    def playing(self) -> Iterator[None]:
        """The live part."""
        self._zero_ms = time.time_ns() / 1_000_000
        self.say("")
        self.say(Text(_columns("order", "delay", "due", "received", "late") + "then", "bold"))
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield

    def ordered(self, order: Order) -> None:
        """A customer of the story orders something."""
        if order.named:
            text = f"{order.who}: close in {_length(order.delay_ms)} unless paid"
            self.say(Text.assemble(("▸ ", "bold magenta"), (text, "magenta")))

    def arrived(self, order: Order | None, arrival: Arrival) -> None:
        """A job was received."""
        line = _columns(
            order.who if order else arrival.id,
            _length(order.last_delay_ms) if order else "",
            self._seconds(arrival.due_ms),
            self._seconds(arrival.received_ms),
            f"{arrival.lateness_ms:.0f} ms",
        )
        style = "bold" if order and order.named else ""
        style = "yellow" if arrival.lateness_ms >= _LATE_MS else style
        self.say(Text(line, style).append_text(_then(arrival)))

    def changed(self, order: Order) -> None:
        """A customer pays, or asks for more time."""
        text = f"{order.who}: {order.change.value}"
        self.say(Text.assemble(("▸ ", "bold magenta"), (text, "magenta")))

    def kept_away(self, order: Order, due_ms: int) -> None:
        """A job has not come at the time that was called off."""
        line = _columns(order.who, _length(order.delay_ms), self._seconds(due_ms), "—", "—")
        self.say(Text(line, "bold").append(f"{order.change.name.lower()}: no run", "green"))

    def kicked(self, order: Order, reason: str) -> None:
        """Somebody kicks a buried job."""
        text = f"{order.who}: was buried, because {reason!r}; kicked"
        self.say(Text.assemble(("▸ ", "bold magenta"), (text, "magenta")))

    def show(self, scoreboard: Scoreboard, holding: Mapping[str, int]) -> None:
        """Draw the panel anew."""
        if self._live is not None:
            self._live.update(_panel(scoreboard, holding), refresh=True)

    def _seconds(self, unix_ms: float) -> str:
        return f"{(unix_ms - self._zero_ms) / 1000:.3f} s"


def _columns(who: str, delay: str, due: str, received: str, late: str) -> str:
    return f"{who:18}{delay:>7}{due:>11}{received:>11}{late:>8}  "


def _length(delay_ms: int) -> str:
    """A delay as an audience reads it, in one unit."""
    return f"{delay_ms} ms" if delay_ms < ladder.SECOND_MS else f"{delay_ms / 1000:g} s"


def _then(arrival: Arrival) -> Text:
    colors = {"paid": "green", "not paid": "red"}
    return Text(arrival.then, colors.get(arrival.then.partition(":")[0], "bold yellow"))


def _panel(scoreboard: Scoreboard, holding: Mapping[str, int]) -> Panel:
    # In a padding, because a bare bar does not end its line.
    bar = Padding(ProgressBar(scoreboard.expected, scoreboard.arrived, width=_WIDTH - 4), 0)
    title = f"{scoreboard.arrived} of {scoreboard.expected} jobs have arrived"
    pieces: list[RenderableType] = [bar, _hold_queues(holding), _lateness(scoreboard)]
    return Panel(Group(*pieces), title=title, border_style="cyan", width=_WIDTH)


def _hold_queues(holding: Mapping[str, int]) -> Table:
    """The hold queues side by side, each with its label, a block and its count."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column()
    for _ in holding:
        grid.add_column(justify="right", ratio=1)
    grid.add_row(Text("hold queue", "dim"), *(Text(label, "bold") for label in holding))
    grid.add_row("", *(Text(_block(count) * 3, "cyan") for count in holding.values()))
    grid.add_row(Text("waiting", "dim"), *(str(count) for count in holding.values()))
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
