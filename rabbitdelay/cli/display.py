"""Display: tables, JSON, and signs of life while something takes its time."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Timer

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
)
from rich.table import Table

from rabbitdelay import duration

PATIENCE_SECONDS = 1.0
_SHOWN_EVERY = 100
WIDTH_WITHOUT_TERMINAL = 1_000
"""In a pipe nothing is cut off: what reads it has no edge."""

SETTLING = "new queues settle for 3 s, once"


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


def print_table(rows: Table) -> None:
    """Print a table without the blanks that fill its last column."""
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


def moment(milliseconds: int) -> str:
    """A time as people and programs read it."""
    text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def printable(text: str) -> str:
    """Text from elsewhere, without what would move the cursor or change the colours."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def relative(milliseconds: int, now_ms: int) -> str:
    """A time as seen from now, in whole seconds: `in 20m`, `4m12s ago`."""
    seconds = abs(milliseconds - now_ms) // 1000
    text = duration.describe(seconds * 1000)
    return f"in {text}" if milliseconds > now_ms else f"{text} ago"


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
    """How much of a file was read, and how many of its jobs are confirmed."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._bytes = 0
        self.count = 0
        """How many jobs are confirmed."""

    def read(self, size: int) -> None:
        """Note a line."""
        self._bytes += size

    def confirmed(self) -> None:
        """Note a confirmed job. Drawing costs more than putting: not each one is shown."""
        self.count += 1
        if self.count % _SHOWN_EVERY == 1:
            text = f"{self.count:,} confirmed"
            self._progress.update(self._task, description=text, completed=self._bytes)


@contextmanager
def reading(size: int | None) -> Iterator[ReadingProgress]:
    """A progress bar for a file of so many bytes, when that is known; on a terminal only."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield ReadingProgress(progress, progress.add_task(SETTLING, total=size))
