"""Read which topics are paused, within a short time."""

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
"""Maximum seconds to wait for the log, so that the counts are shown in any case."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Paused topics, or the reason why they are unknown."""

    is_paused: Callable[[str], bool] = lambda _: False
    unknown: str | None = None
    """Reason why the paused topics are unknown; None if they are known."""

    def mark(self, count: TopicCounts) -> TopicCounts:
        """Return the counts of a topic with its paused state."""
        return replace(count, paused=self.is_paused(count.topic))

    def tell(self) -> None:
        """Report on stderr if the paused topics are unknown."""
        if self.unknown is not None:
            click.echo(f"note: {remark(self.unknown)}", err=True)


def remark(unknown: str) -> str:
    """Return the message for unknown paused topics."""
    return f"paused topics are unknown: {unknown}"


def topic_as_json(count: TopicCounts, unknown: str | None) -> dict[str, Any]:
    """Return the counts of a topic as a JSON object."""
    return asdict(count) if unknown is None else asdict(count) | {"paused": None}


def read_pauses(settings: Settings) -> Pauses:
    """Return the currently paused topics."""
    with PauseWatch(settings) as watch:
        return watch.look()


class PauseWatch:
    """Reads the paused topics repeatedly with one client, so that the log is read only once."""

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
        """Return the currently paused topics. Nothing is declared."""
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
