"""Options that select the hold queues and topics of a topology command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any

import click

from rabbitdelay import duration
from rabbitdelay.cli.options import read_duration, read_topic
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Declaration, Part
from rabbitdelay.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Selection:
    """Hold queues and topics, in addition to the base objects of every namespace."""

    hops: tuple[ladder.Hop, ...] = ()
    topics: tuple[str, ...] = ()

    def parts(self, topology: Topology) -> list[Part]:
        """Return the selected queues and their bindings."""
        holds = [topology.hold(hop) for hop in self.hops]
        return holds + [part for topic in self.topics for part in topology.topic(topic)]

    def declarations(self, topology: Topology) -> tuple[Declaration, ...]:
        """Return the declarations of the selection and of the base objects."""
        return topology.plan(self.hops, self.topics)

    def __or__(self, other: "Selection") -> "Selection":
        """Return the union of both selections."""
        hops = dict.fromkeys((*self.hops, *other.hops))
        return Selection(tuple(hops), tuple(dict.fromkeys((*self.topics, *other.topics))))


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the selection options to a command and pass it a Selection."""

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
        hops = ladder.EVERY_HOP if every else tuple(hop for one in delays for hop in _hops(one))
        selection = Selection() | Selection(hops, tuple(topics))
        command(*arguments, selection=selection, **options)

    return select


def _hops(delay: timedelta) -> tuple[ladder.Hop, ...]:
    return ladder.hops(ladder.to_digits(duration.milliseconds(delay, what="delay")))
