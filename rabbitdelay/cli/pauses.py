"""Pauses: which topics are paused, as far as that can be known in a moment."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, Self

import click

from rabbitdelay.cli.context import Settings
from rabbitdelay.cli.deletes import has_log, read_log
from rabbitdelay.core.topology.counts import TopicCounts
from rabbitdelay.errors import ConnectionFailed, RabbitDelayError
from rabbitdelay.sync.client import Client, read_tombstones

MOST_SECONDS = 5.0
"""How long to wait for the log to be read: the counts are worth more than to wait for ever."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Which topics are paused."""

    is_paused: Callable[[str], bool] = lambda _: False
    unknown: str | None = None
    """Why that is not known; None when it is."""

    def mark(self, count: TopicCounts) -> TopicCounts:
        """Say it of a topic that was counted."""
        return replace(count, paused=self.is_paused(count.topic))

    def tell(self) -> None:
        """Say on stderr what is not known."""
        if self.unknown is not None:
            click.echo(f"note: {remark(self.unknown)}", err=True)


def remark(unknown: str) -> str:
    """What people are told when it is not known."""
    return f"which topics are paused is not known: {unknown}"


def topic_as_json(count: TopicCounts, unknown: str | None) -> dict[str, Any]:
    """What programs are told of a topic."""
    return asdict(count) if unknown is None else asdict(count) | {"paused": None}


def read_pauses(settings: Settings) -> Pauses:
    """Look once."""
    with PauseWatch(settings) as watch:
        return watch.look()


class PauseWatch:
    """Looks again and again, over one client: the log is read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def look(self) -> Pauses:
        """Say which topics are paused now. Nothing is made for it."""
        try:
            if self._client is not None:
                return Pauses(read_tombstones(self._client).is_paused)
            return self._begin() if has_log(self._settings) else Pauses()
        except ConnectionFailed:
            raise
        except RabbitDelayError as error:
            return Pauses(unknown=str(error))

    @property
    def _most_seconds(self) -> float:
        return min(MOST_SECONDS, self._settings.timeout.total_seconds())

    def _begin(self) -> Pauses:
        self._client = self._stack.enter_context(self._settings.onlooker())
        return Pauses(read_log(self._client, lambda _: None, self._most_seconds).is_paused)
