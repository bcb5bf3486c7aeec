"""Read the log of deletes to its end before a command continues, and report progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click
from rich.console import Console
from rich.status import Status

from rabbitdelay.cli.context import LOOK_SECONDS, Settings
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.errors import CutOff
from rabbitdelay.sync.client import Client, read_tombstones

QUIET_SECONDS = 2.0
"""Seconds of reading after which progress is shown."""
STANDSTILL_SECONDS = 30.0
"""Seconds to wait for a log that makes no progress."""
Report = Callable[[str], None]


def read_deletes(client: Client, most_seconds: float) -> LogReader | None:
    """Read the log of deletes to its end, and report progress on stderr when that takes a while.

    Nothing is declared. Return None if nothing was ever put or deleted.

    Raises:
        CutOff: The log cannot be read, or was not read in time.
    """
    with suppress(CutOff):
        return read_tombstones(client, LOOK_SECONDS)
    with _reporting() as report:
        return read_log(client, report, most_seconds)


@contextmanager
def known_deletes(settings: Settings) -> Iterator[LogReader | None]:
    """Read the log and keep following it in the block; None if nothing was ever put or deleted.

    Raises:
        CutOff: The log cannot be read.
    """
    with settings.observer(settings.rest_seconds) as client:
        yield read_deletes(client, settings.rest_seconds)


def read_log(client: Client, report: Report, most_seconds: float) -> LogReader | None:
    """Wait until the log has been read, and report progress. Each attempt reads further."""
    began = moved_at = time.monotonic()
    last = ""
    while True:
        try:
            return read_tombstones(client, LOOK_SECONDS)
        except CutOff as error:
            now, text = time.monotonic(), str(error)
            moved_at, last = (moved_at, last) if text == last else (now, text)
            if now - began > most_seconds or now - moved_at > STANDSTILL_SECONDS:
                raise
            if now - began > QUIET_SECONDS:
                report(text)
            time.sleep(LOOK_SECONDS / 4)  # a log that was read and is cut off fails at once


@contextmanager
def _reporting() -> Iterator[Report]:
    """Report progress on stderr: a redrawn line on a terminal, one message elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        with _status_line(console) as report:
            yield report
        return
    reported: list[str] = []

    def report_once(text: str) -> None:
        if not reported:
            click.echo(text, err=True)
        reported.append(text)

    yield report_once


@contextmanager
def _status_line(console: Console) -> Iterator[Report]:
    status = Status("", console=console)

    def report(text: str) -> None:
        status.update(text)
        status.start()

    try:
        yield report
    finally:
        status.stop()
