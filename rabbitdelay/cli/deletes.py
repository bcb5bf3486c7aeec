"""What is known of deletes: the log of the namespace, read to its end while a person waits."""

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
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.client import Client, read_tombstones

QUIET_SECONDS = 2.0
"""How long it may take before it is worth a word."""
STANDSTILL_SECONDS = 30.0
"""How long to wait for a log that nothing comes from any more."""
PROOF_SECONDS = 0.005
"""How often to ask again whether all deletes of a job are known."""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Deletes:
    """What is known of deletes, and read again where that is not enough."""

    client: Client
    most_seconds: float
    """How long to wait for the log to be read."""

    def follower(self) -> Follower:
        """Who knows it, when the log is read."""
        with suppress(CutOff):
            return read_tombstones(self.client)
        with _telling() as tell:
            return read_log(self.client, tell, self.most_seconds)

    def death_of(self, job: Job, message: Message) -> Death | None:
        """Why a job is dead; None when it lives. Tombstones of old jobs are looked for in the log.

        A buried job may be older than what consumers keep in mind, and is as new when it is kicked.
        """
        deadline = time.monotonic() + self.most_seconds
        while not (follower := self.follower()).is_sure_of(job, message):
            if time.monotonic() > deadline:
                raise CutOff(
                    "the log of deletes does not answer: which jobs are deleted is unknown"
                )
            time.sleep(PROOF_SECONDS)  # it is being read, or a fence is on its way
        return follower.death_of(job, message)


@contextmanager
def known_deletes(settings: Settings) -> Iterator[Deletes | None]:
    """Read the log, for as long as it is read on; None when nothing was ever put or deleted.

    Looking makes nothing: a namespace without a log stays one.

    Raises:
        CutOff: The log cannot be read.
    """
    if not has_log(settings):
        yield None
        return
    with settings.onlooker() as client:
        deletes = Deletes(client, settings.rest_seconds)
        deletes.follower()
        yield deletes


def has_log(settings: Settings) -> bool:
    """Whether anything was ever put or deleted in the namespace."""
    with settings.connection() as connection:
        return Administrator(connection).count(settings.topology.log().queue.name) is not None


def read_log(client: Client, tell: Tell, most_seconds: float = math.inf) -> Follower:
    """Wait until it is read, and tell how far it is. It comes a little further with each look."""
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
                tell(text)
            time.sleep(LOOK_SECONDS / 4)  # it answers at once when it was read, and is cut off


@contextmanager
def _telling() -> Iterator[Tell]:
    """A line on stderr that is drawn anew on a terminal; elsewhere it is told once."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        with _shown_when_told(console) as tell:
            yield tell
        return
    told: list[str] = []

    def tell_once(text: str) -> None:
        if not told:
            click.echo(text, err=True)
        told.append(text)

    yield tell_once


@contextmanager
def _shown_when_told(console: Console) -> Iterator[Tell]:
    status = Status("", console=console)

    def tell(text: str) -> None:
        status.update(text)
        status.start()

    try:
        yield tell
    finally:
        status.stop()
