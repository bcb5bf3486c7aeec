"""Options that select the hold queues and topics of a topology command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, TypedDict

import click

from rabbitdelay.cli.options import read_duration, read_topic
from rabbitdelay.core.topology import ladder


class SelectionArguments(TypedDict):
    """The arguments of `client.topology` that select hold queues and topics."""

    topics: Sequence[str]
    delays: Sequence[timedelta]
    all_hold_queues: bool


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The selected hold queues and topics, in addition to the base objects of every namespace."""

    topics: Sequence[str] = ()
    delays: Sequence[timedelta] = ()
    every: bool = False

    def arguments(self) -> SelectionArguments:
        """Return the selection as arguments of `client.topology`."""
        return SelectionArguments(
            topics=self.topics, delays=self.delays, all_hold_queues=self.every
        )


def takes_topology_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, and pass their values as `selected`."""

    @click.option("--all", "every", is_flag=True, help=f"All {len(ladder.EVERY_HOP)} hold queues.")
    @click.option(
        "--delay",
        "delays",
        type=read_duration,
        metavar="DURATION",
        multiple=True,
        help="Delay whose hold queues to include. Repeatable.",
    )
    @click.option(
        "--topic",
        "topics",
        type=read_topic,
        metavar="TOPIC",
        multiple=True,
        help="Topic whose queues to include. Repeatable.",
    )
    @wraps(command)
    def select(
        *arguments: Any,  # noqa: ANN401 - passed on
        every: bool,
        delays: Sequence[timedelta],
        topics: Sequence[str],
        **options: Any,  # noqa: ANN401 - passed on
    ) -> None:
        command(*arguments, selected=TopologyOptions(topics, delays, every), **options)

    return select
