"""The selection: which hold queues and topics a topology command is about."""

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
    """Some hold queues and topics, besides what every namespace has."""

    hops: tuple[ladder.Hop, ...] = ()
    topics: tuple[str, ...] = ()

    def parts(self, topology: Topology) -> list[Part]:
        """Their queues, with what leads to them."""
        holds = [topology.hold(hop) for hop in self.hops]
        return holds + [part for topic in self.topics for part in topology.topic(topic)]

    def declarations(self, topology: Topology) -> tuple[Declaration, ...]:
        """All of it, what every namespace has included."""
        return topology.plan(self.hops, self.topics)

    def __or__(self, other: "Selection") -> "Selection":
        """What is in either."""
        hops = dict.fromkeys((*self.hops, *other.hops))
        return Selection(tuple(hops), tuple(dict.fromkeys((*self.topics, *other.topics))))


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that select, and pass it a Selection."""

    @click.option("--all", "every", is_flag=True, help=f"All {len(ladder.EVERY_HOP)} hold queues.")
    @click.option(
        "--delay",
        "delays",
        type=read_duration,
        metavar="DURATION",
        multiple=True,
        help="The hold queues of a delay.",
    )
    @click.option(
        "--topic",
        "topics",
        type=read_topic,
        metavar="TOPIC",
        multiple=True,
        help="The queues of a topic.",
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
