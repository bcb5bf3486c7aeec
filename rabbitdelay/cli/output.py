"""Display: tables, JSON, and signs of life while something takes its time."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Timer

import click
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
)
from rich.table import Table
from rich.text import Text

from rabbitdelay import duration
from rabbitdelay.core.topology.counts import TopicCounts

PATIENCE_SECONDS = 1.0
_SHOWN_EVERY = 100
WIDTH_WITHOUT_TERMINAL = 1_000
"""In a pipe nothing is cut off: what reads it has no edge."""


_PREVIEW_BYTES = 40
_HEX_ROW = 16
_HEX_ROWS = 16


def output() -> Console:
    """Where tables go. What is in them is shown as it is: an id may look like markup."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def print_json(value: object) -> None:
    """Print a value for scripts."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def counted(count: int, noun: str) -> str:
    """So many of something: `1 job`, `2,000 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_table(rows: RenderableType) -> None:
    """Print a table, or what has one in it, without the blanks that fill its last column."""
    console = output()
    with console.capture() as capture:
        console.print(rows)
    for line in capture.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table with these columns; those of numbers are aligned to the right."""
    result = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        result.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return result


def topics_table(counts: Sequence[TopicCounts]) -> Table:
    """How many jobs of each topic are where; a last column only when a topic is paused."""
    numbers = ("ready", "reserved", "buried", "consumers")
    rows = table("topic", *numbers, numbers=numbers)
    if any(count.paused for count in counts):
        rows.add_column("state")
    for column in rows.columns:
        column.no_wrap = True
    for count in counts:
        rows.add_row(
            Text(count.topic, overflow="ellipsis"),
            _number(count.ready, "missing"),
            _number(count.reserved, "?"),
            _number(count.buried, "missing"),
            _number(count.consumers),
            *([Text("paused", "bold yellow")] if count.paused else []),
        )
    return rows


def moment(milliseconds: int) -> str:
    """A time as people and programs read it; what no calendar has, as the number that it is."""
    try:
        text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms since 1970"
    return text.replace("+00:00", "Z")


def printable(text: str) -> str:
    """Text from elsewhere, without what would move the cursor or change the colours."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def preview(body: bytes) -> str:
    """The beginning of a body, as text."""
    text = body[:_PREVIEW_BYTES].decode(errors="replace")
    return text + ("…" if len(body) > _PREVIEW_BYTES else "")


def body_text(body: bytes) -> str | None:
    """A body as the text that it is; None when it is something else."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    strange = any(letter < " " and letter not in "\t\n\r" for letter in text)
    return None if strange else text


def body_lines(body: bytes) -> list[str]:
    """A body for people: JSON laid out, text as it is, the beginning of anything else in hex."""
    text = body_text(body)
    if text is None:
        return _hex_lines(body)
    return [printable(line.expandtabs(4)) for line in _laid_out(text).splitlines()]


def plain(value: object) -> object:
    """A value from an AMQP header, as JSON has it."""
    match value:
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case datetime():
            return moment(int(value.timestamp() * 1000))
        case bytes():
            return body_text(value) or value.hex()
        case str() | int() | float() | None:
            return value
    return str(value)


def relative(milliseconds: int, now_ms: int) -> str:
    """A time as seen from now, in whole seconds: `in 20m`, `4m12s ago`."""
    seconds = abs(milliseconds - now_ms) // 1000
    text = duration.describe(seconds * 1000)
    return f"in {text}" if milliseconds > now_ms else f"{text} ago"


def agree_to_drop(count: int) -> bool:
    """Ask whether so many jobs may go; wrong input when there is nobody to ask."""
    return agree(f"Drop {counted(count, 'job')} for good?", "drop")


def agree(question: str, verb: str) -> bool:
    """Ask; wrong input when there is nobody to ask."""
    try:
        return click.confirm(question, err=True)
    except RuntimeError as error:  # click's Abort is one, and so is a stdin that is closed
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)
        text = f"nobody answers: give --yes to {verb} without being asked"
        raise click.UsageError(text) from None


@contextmanager
def patience(reason: str) -> Iterator[None]:
    """A spinner that says why, for what takes longer than a moment; on a terminal only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(reason)
    timer = Timer(PATIENCE_SECONDS, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def steps(description: str, total: int) -> Iterator[Callable[[str | None], None]]:
    """A progress bar on a terminal; yields what to call after each step, or with a new text."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(description, total=total)

        def advance(text: str | None = None) -> None:
            if text is None:
                progress.advance(task)
            else:
                progress.update(task, description=text)

        yield advance


class ReadingProgress:
    """How much of a file was read, and how many of its lines are done."""

    def __init__(self, progress: Progress, task: TaskID, done: str) -> None:
        self._progress = progress
        self._task = task
        self._done = done
        self._bytes = 0
        self._expected = 0
        self._reason = ""
        self.count = 0
        """How many are done."""

    def read(self, size: int) -> None:
        """Note a line."""
        self._bytes += size

    def is_read(self, expected: int, reason: str) -> None:
        """Note that all is read, how many are to be done, and what is waited for until then."""
        self._expected, self._reason = expected, reason
        self._draw()

    def confirmed(self) -> None:
        """Note a confirmed job. Drawing costs more than putting: not each one is shown."""
        self.count += 1
        if self.count % _SHOWN_EVERY == 1:
            self._draw()

    def reached(self, count: int) -> None:
        """Note that so many are done."""
        self.count = count
        self._draw()

    def _draw(self) -> None:
        text = f"{self.count:,} {self._done}"
        if self._expected > self.count:
            text = f"{self.count:,} of {self._expected:,} {self._done}, {self._reason}"
        self._progress.update(self._task, description=text, completed=self._bytes)


@contextmanager
def reading(size: int | None, done: str, *, at_first: str = "") -> Iterator[ReadingProgress]:
    """A progress bar for a file of so many bytes, when that is known; on a terminal only."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield ReadingProgress(progress, progress.add_task(at_first, total=size), done)


def _number(count: int | None, otherwise: str = "") -> str:
    return otherwise if count is None else f"{count:,}"


def _laid_out(text: str) -> str:
    try:
        value = json.loads(text, parse_float=_exact, parse_constant=_exact)
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _exact(number: str) -> float:
    """Refuse a number that Python would write in another way: then the text is shown as it is."""
    if repr(float(number)) != number:
        raise ValueError(number)
    return float(number)


def _hex_lines(body: bytes) -> list[str]:
    shown = body[: _HEX_ROW * _HEX_ROWS]
    rows = [shown[start : start + _HEX_ROW] for start in range(0, len(shown), _HEX_ROW)]
    lines = [
        f"{number * _HEX_ROW:04x}  {row.hex(' '):{3 * _HEX_ROW}} {_ascii(row)}"
        for number, row in enumerate(rows)
    ]
    rest = len(body) - len(shown)
    return [*lines, f"… and {counted(rest, 'byte')} more"] if rest else lines


def _ascii(row: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in row)  # noqa: PLR2004
