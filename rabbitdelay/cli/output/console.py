"""Output of the commands: tables, JSON, text and progress."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
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
from rabbitdelay.core.amqp.field_table import TEXT_ERRORS, Encoded, ScaledInteger, Timestamp
from rabbitdelay.core.topology.counts import Statistics, TopicCounts

PATIENCE_SECONDS = 1.0
_SHOWN_EVERY = 100
WIDTH_WITHOUT_TERMINAL = 1_000
"""Width of the output in a pipe, where nothing needs to be truncated."""


_PREVIEW_BYTES = 40
_HEX_ROW = 16
_HEX_ROWS = 16


def output() -> Console:
    """Return the console for tables, without markup because an id may look like it."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def print_json(value: object) -> None:
    """Print a value as JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(text.encode(errors="replace").decode())  # an id may not be UTF-8


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2,000 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_table(rows: RenderableType) -> None:
    """Print a table, or a renderable with one, without trailing blanks."""
    console = output()
    with console.capture() as capture:
        console.print(rows)
    for line in capture.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """Return a table with these columns, with those in `numbers` right-aligned."""
    result = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        result.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return result


def pauses_unknown(found: Statistics) -> str:
    """Say why the paused topics are unknown."""
    return f"paused topics are unknown: {found.deletes_error}"


def topics_table(counts: Sequence[TopicCounts]) -> Table:
    """Return a table of job counts by topic, with a state column only if a topic is paused."""
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
    """Return a time in ISO 8601, or in milliseconds if it is out of the calendar's range."""
    try:
        text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms since 1970"
    return text.replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return untrusted text without characters that control the terminal."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def preview(body: bytes) -> str:
    """Return the start of a body as text."""
    text = body[:_PREVIEW_BYTES].decode(errors="replace")
    return text + ("…" if len(body) > _PREVIEW_BYTES else "")


def body_text(body: bytes) -> str | None:
    """Return a body as text, or None if it is not plain text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    has_controls = any(letter < " " and letter not in "\t\n\r" for letter in text)
    return None if has_controls else text


def body_lines(body: bytes) -> list[str]:
    """Return a body as lines: JSON indented, text unchanged, the start of anything else in hex."""
    text = body_text(body)
    if text is None:
        return _hex_lines(body)
    return [printable(line.expandtabs(4)) for line in _indented(text).splitlines()]


def plain(value: object) -> object:
    """Return a value of an AMQP header as a JSON value."""
    match value:
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case Timestamp() | ScaledInteger() | Encoded():
            return _amqp_value(value)
        case str() | bytes():
            return _utf_8_or_hex(value)
    return value if isinstance(value, int | float | None) else str(value)


def _amqp_value(value: Timestamp | ScaledInteger | Encoded) -> str:
    """Return a value for which Python has no type of its own as text."""
    if isinstance(value, Timestamp):
        return moment(value.seconds * 1000)
    if isinstance(value, ScaledInteger):
        return str(Decimal(value.unscaled).scaleb(-value.scale))
    return f"0x{value.data.hex()}"


def _utf_8_or_hex(value: str | bytes) -> str:
    """Return text from an AMQP header; bytes that are not text as hexadecimal digits."""
    if isinstance(value, bytes):
        return body_text(value) or value.hex()
    data = value.encode(errors=TEXT_ERRORS)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def relative(milliseconds: int, now_ms: int) -> str:
    """Return a time relative to now, in whole seconds: `in 20m`, `4m12s ago`."""
    seconds = abs(milliseconds - now_ms) // 1000
    text = duration.describe(seconds * 1000)
    return f"in {text}" if milliseconds > now_ms else f"{text} ago"


def agree_to_drop(count: int) -> bool:
    """Ask whether to drop the jobs; raise UsageError if stdin is not interactive."""
    return agree(f"Drop {counted(count, 'job')} for good?", "drop")


def agree(question: str, verb: str) -> bool:
    """Ask a yes-or-no question; raise UsageError if stdin is not interactive."""
    try:
        return click.confirm(question, err=True)
    except RuntimeError as error:  # click's Abort, or a closed stdin
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)
        text = f"cannot ask for confirmation without input: use --yes to {verb} without asking"
        raise click.UsageError(text) from None


@contextmanager
def patience(reason: str) -> Iterator[None]:
    """Show a spinner with the reason after 1 s of waiting, on a terminal only."""
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
def progress_bar(description: str, last: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, with another text at its end; yields an `on_progress`."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(description, total=None)

        def show(done: int, total: int) -> None:
            text = last if done == total else description
            progress.update(task, description=text, completed=done, total=total)

        yield show


@contextmanager
def steps(description: str, total: int) -> Iterator[Callable[[str | None], None]]:
    """Show a progress bar on a terminal; yield a function to call after each step."""
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
    """Progress of reading a file and of processing its lines."""

    def __init__(self, progress: Progress, task: TaskID, done: str) -> None:
        self._progress = progress
        self._task = task
        self._done = done
        self._bytes = 0
        self._expected = 0
        self._reason = ""
        self.count = 0
        """Number of processed lines."""

    def read(self, size: int) -> None:
        """Record a line of this size in bytes."""
        self._bytes += size

    def is_read(self, expected: int, reason: str) -> None:
        """Record the end of the file, the expected number of lines and the reason for waiting."""
        self._expected, self._reason = expected, reason
        self._draw()

    def confirmed(self) -> None:
        """Count a confirmed job. Not every one is drawn, because drawing costs more than a put."""
        self.count += 1
        if self.count % _SHOWN_EVERY == 1:
            self._draw()

    def reached(self, count: int) -> None:
        """Set the number of processed lines."""
        self.count = count
        self._draw()

    def _draw(self) -> None:
        text = f"{self.count:,} {self._done}"
        if self._expected > self.count:
            text = f"{self.count:,} of {self._expected:,} {self._done}, {self._reason}"
        self._progress.update(self._task, description=text, completed=self._bytes)


@contextmanager
def reading(size: int | None, done: str, *, at_first: str = "") -> Iterator[ReadingProgress]:
    """Show a progress bar for a file of `size` bytes (None: unknown), on a terminal only."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield ReadingProgress(progress, progress.add_task(at_first, total=size), done)


def _number(count: int | None, otherwise: str = "") -> str:
    return otherwise if count is None else f"{count:,}"


def _indented(text: str) -> str:
    try:
        value = json.loads(text, parse_float=_exact, parse_constant=_exact)
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _exact(number: str) -> float:
    """Parse a number; raise ValueError if Python would write the number differently."""
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
