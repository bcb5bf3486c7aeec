"""Progress on stderr: a spinner, a bar, and the lines of a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from rabbitdelay.cli.input.files import size_of

PATIENCE_SECONDS = 1.0
_SHOWN_EVERY = 100


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
    """Show a progress bar on a terminal, which ends with the text `last`; yield `on_progress`."""
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
def reading(file: BinaryIO, done: str, *, at_first: str = "") -> Iterator[ReadingProgress]:
    """Show a progress bar for reading a file, on a terminal only.

    Lines that are typed on a terminal get none, because it would be drawn over them.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"))
    is_shown = console.is_terminal and not file.isatty()
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as progress:
        yield ReadingProgress(progress, progress.add_task(at_first, total=size_of(file)), done)
