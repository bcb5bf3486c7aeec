"""The deletes of a namespace, read from the end of its log while the command waits."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import click
from rich.console import Console
from rich.status import Status

from rabbitdelay.cli.context import LOOK_SECONDS, Settings
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.engine.deletes.reader import Follower
from rabbitdelay.errors import CutOff
from rabbitdelay.models import Job
from rabbitdelay.sync.client import Client, has_log, read_tombstones

QUIET_SECONDS = 2.0
"""Seconds of reading after which progress is shown."""
STANDSTILL_SECONDS = 30.0
"""Seconds to wait for a log that makes no progress."""
PROOF_SECONDS = 0.005
"""Seconds between checks whether all deletes of a job are known."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Deletes:
    """The known deletes, read again from the log where necessary."""

    client: Client
    most_seconds: float
    """Maximum seconds to wait until the log has been read."""

    def follower(self) -> Follower:
        """Return the follower of the log once it has read the log to its end."""
        with suppress(CutOff):
            return read_tombstones(self.client)
        with _reporting() as report:
            return read_log(self.client, report, self.most_seconds)

    def death_of(self, job: Job, message: Message) -> Death | None:
        """Return why a job is deleted, or None; tombstones of old jobs are read from the log.

        A buried job may be older than the tombstones that consumers keep, and a kick renews it.
        """
        deadline = time.monotonic() + self.most_seconds
        while not (follower := self.follower()).is_sure_of(job, message):
            if time.monotonic() > deadline:
                raise CutOff(
                    "the log of deletes does not respond, so the deleted jobs are unknown: check "
                    "the broker and try again"
                )
            time.sleep(PROOF_SECONDS)  # the log is being read, or a fence is in flight
        return follower.death_of(job, message)


@contextmanager
def known_deletes(settings: Settings) -> Iterator[Deletes | None]:
    """Read the log and keep following it in the block; None if nothing was ever put or deleted.

    Nothing is declared: a namespace without a log remains without one.

    Raises:
        CutOff: The log cannot be read.
    """
    with settings.administrator() as client:
        if not has_log(client):
            yield None
            return
    with settings.onlooker() as client:
        deletes = Deletes(client, settings.rest_seconds)
        deletes.follower()
        yield deletes


def read_log(client: Client, report: Report, most_seconds: float = math.inf) -> Follower:
    """Wait until the log has been read, and report progress. Each attempt reads further."""
    began = moved_at = time.monotonic()
    last = ""
    while True:
        try:
            return read_tombstones(client)
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
