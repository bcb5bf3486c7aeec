"""`rabbitdelay stats`: how many jobs are where, and when the delayed ones come due."""

import json
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rabbitdelay import discovery, duration
from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.options import json_option, read_duration, read_topic
from rabbitdelay.cli.output import (
    counted,
    moment,
    output,
    patience,
    pauses_unknown,
    print_json,
    print_table,
    topics_table,
)
from rabbitdelay.core.topology.counts import HoldCount, Statistics, TopicCounts
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.private_broker import signals

_SHORTEST_INTERVAL = timedelta(milliseconds=100)
_DEFAULT_INTERVAL = timedelta(seconds=1)

_ANSWER_SECONDS = 3.0
"""How long the broker may take to answer, until a watcher says that it does not."""

_LABEL_WIDTH = 10
_BAR_WIDTH = 44
_FIXED_LINES = 9
"""The title, the heads, the lines between, and the one that the cursor is on."""
_FEWEST_ROWS = 3
_NO_EDGE = 10_000
_DOCTOR = "`rabbitdelay doctor`"


@click.command(short_help="Count all jobs, and the delayed ones by when they are due.")
@click.argument("names", metavar="[TOPIC]...", type=read_topic, nargs=-1)
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=read_duration,
    metavar="DURATION",
    help="How long to wait between two looks; for --watch.  [default: 1s]",
)
@json_option
@pass_settings
def stats(
    settings: Settings,
    names: tuple[str, ...],
    interval: timedelta | None,
    *,
    watch: bool,
    as_json: bool,
) -> None:
    """Count the jobs of all topics, or of TOPICs, and the delayed ones by when they come due.

    The delayed jobs are those of the whole namespace: a hold queue is shared by all topics. A job
    leaves the hold queue 30m within 30m, and may have seconds to wait after it: so it comes due
    within 31m. Exits with 3 when a named TOPIC is not there.
    """
    if interval is not None and not watch:
        raise click.UsageError("--interval is for --watch")
    interval_seconds = _seconds(interval)
    lookout = _Lookout.of(settings, names)
    if watch:
        settings.require_namespace()
        _watch(lookout, interval_seconds, as_json=as_json)
        return
    with patience("counting, queue by queue"):
        now = lookout.look()
    if as_json:
        print_json(_as_json(now, settings.topology))
    else:
        print_table(_picture(now, output()))
    if now.missing:
        answer_no()


def _seconds(interval: timedelta | None) -> float:
    chosen = _DEFAULT_INTERVAL if interval is None else interval
    if chosen < _SHORTEST_INTERVAL:
        raise click.UsageError("--interval must be at least 100ms")
    return chosen.total_seconds()


@dataclass(frozen=True, slots=True)
class _Lookout:
    """Which broker and which topics: found once, and not again while a broker is away."""

    settings: Settings
    names: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings, names: tuple[str, ...]) -> Self:
        return cls(replace(settings, url=discovery.locate_url(settings.url)), names)

    def look(self) -> Statistics:
        """Look once."""
        with self.settings.client() as client:
            return client.stats(*self.names)

    def look_on(self, interval_seconds: float) -> Generator[Statistics, None, None]:
        """Look again and again, until the broker does not answer."""
        seconds = min(_ANSWER_SECONDS, self.settings.timeout.total_seconds())
        with self.settings.onlooker(seconds) as client:
            while True:
                yield client.stats(*self.names)
                time.sleep(interval_seconds)


# Watching


class _Screen(Protocol):
    """Where a watcher sees what it looks at."""

    def show(self, now: Statistics) -> None:
        """Show what was counted."""

    def tell(self, trouble: str) -> None:
        """Say why nothing can be counted."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """A line of JSON for each look."""

    topology: Topology

    def show(self, now: Statistics) -> None:
        click.echo(json.dumps(_as_json(now, self.topology)))

    def tell(self, trouble: str) -> None:
        click.echo(json.dumps({"time": _now(), "error": trouble}))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A block of text for each look, below the one before."""

    console: Console

    def show(self, now: Statistics) -> None:
        click.echo(_now())
        print_table(_picture(_busiest_first(now), self.console))
        click.echo()

    def tell(self, trouble: str) -> None:
        click.echo(f"{_now()}\n{trouble}\n")


@dataclass(slots=True)
class _InPlace:
    """A picture that is drawn anew in its place, on a terminal."""

    console: Console
    live: Live
    last: RenderableType = ""

    def show(self, now: Statistics) -> None:
        self.last = _picture(_busiest_first(now), self.console)
        self._draw(Text(f"{_now()}   Ctrl-C ends", "dim"))

    def tell(self, trouble: str) -> None:
        self._draw(Text(trouble, "bold red", no_wrap=True, overflow="ellipsis"))

    def _draw(self, title: Text) -> None:
        self.live.update(Group(title, "", self.last), refresh=True)


@contextmanager
def _screen(topology: Topology, *, as_json: bool) -> Iterator[_Screen]:
    console = output()
    if as_json:
        yield _Lines(topology)
    elif not console.is_terminal:
        yield _Blocks(console)
    else:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield _InPlace(console, live)


def _watch(lookout: _Lookout, interval_seconds: float, *, as_json: bool) -> None:
    """Look until Ctrl-C, which is how this ends: no error."""
    with (
        suppress(KeyboardInterrupt),
        signals.interrupting(),
        _screen(lookout.settings.topology, as_json=as_json) as screen,
    ):
        looks = lookout.look_on(interval_seconds)
        screen.show(next(looks))  # at first a broker that is not there is an error
        while True:
            try:
                for now in looks:
                    screen.show(now)
            except RabbitDelayError as error:
                screen.tell(f"no connection, trying again: {error}")
            time.sleep(interval_seconds)
            looks = lookout.look_on(interval_seconds)


# The picture


def _busiest_first(now: Statistics) -> Statistics:
    """The topics with most jobs ready or reserved first: where it gets narrow those are shown."""
    return replace(now, topics=tuple(sorted(now.topics, key=_business)))


def _business(count: TopicCounts) -> tuple[int, int, str]:
    return -(count.ready or 0) - (count.reserved or 0), -(count.buried or 0), count.topic


def _picture(now: Statistics, console: Console) -> RenderableType:
    """The topics, the delayed jobs, and what needs a look; on a terminal it fits the screen."""
    remarks = [*_remarks(now)]
    room = console.height - _FIXED_LINES - len(remarks) if console.is_terminal else _NO_EDGE
    most_bars = max(room // 2, room - len(now.topics), _FEWEST_ROWS)
    delayed = _delayed(now, most_bars, console)
    topics = _topics(now, max(room - min(len(now.delayed), most_bars), _FEWEST_ROWS))
    return Group(*topics, "", *delayed, *([""] if remarks else []), *remarks)


def _topics(now: Statistics, most: int) -> Iterator[RenderableType]:
    if not now.topics:
        known = now.missing or now.management_error is None
        yield Text("no topics" if known else "topics are not known")
        return
    shown = now.topics if len(now.topics) <= most else now.topics[: most - 1]
    yield topics_table(shown)
    if rest := len(now.topics) - len(shown):
        yield Text(f"… and {counted(rest, 'more topic')}: name those to look at", "dim")


def _delayed(now: Statistics, most: int, console: Console) -> Iterator[RenderableType]:
    yield Text.assemble((counted(now.delayed_jobs, "delayed job"), "bold"), " of all topics")
    shown = _largest(now.delayed, most)
    if not shown:
        return
    yield Text(f"{'hold queue':>{_LABEL_WIDTH}}  {'due within':>{_LABEL_WIDTH}}", "bold")
    widest = max(count.jobs for count in shown)
    for count in shown:
        yield _bar(count, widest, console.width)
    if rest := len(now.delayed) - len(shown):
        jobs = now.delayed_jobs - sum(count.jobs for count in shown)
        yield Text(f"… and {counted(rest, 'more hold queue')} with {counted(jobs, 'job')}", "dim")


def _largest(counts: Sequence[HoldCount], most: int) -> list[HoldCount]:
    """Those to show, in their order: all, or the largest and room for a line about the rest."""
    if len(counts) <= most:
        return list(counts)
    largest = sorted(counts, key=lambda count: count.jobs, reverse=True)[: most - 1]
    return [count for count in counts if count in largest]


def _bar(count: HoldCount, widest: int, width: int) -> Text:
    labels = (count.hop.label, duration.describe(count.due_within_ms))
    start = "".join(f"{label:>{_LABEL_WIDTH}}  " for label in labels)
    longest = max(1, min(_BAR_WIDTH, width - len(f"{start} {widest:,}")))
    bar = "█" * -(-count.jobs * longest // widest)
    return Text.assemble(start, (bar, "cyan"), f" {count.jobs:,}")


def _remarks(now: Statistics) -> Iterator[Text]:
    if now.unrouted:
        jobs = counted(now.unrouted, "job")
        yield _line(f"{jobs} could not be routed: see `rabbitdelay unrouted list`", "bold yellow")
    if now.dead_lettering:
        jobs = counted(now.dead_lettering, "job")
        yield _line(f"{jobs} on the way between queues; if it stays: {_DOCTOR}", "yellow")
    if now.missing:
        yield _line(f"no such topic: {', '.join(now.missing)}", "bold red")
    if now.deletes_error:
        yield _line(pauses_unknown(now), "yellow")
    if now.management_error:
        lost = "only named topics are counted, and not what is reserved of them"
        yield _line(f"{lost}: {now.management_error}", "yellow")


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


# For scripts


def _as_json(now: Statistics, topology: Topology) -> dict[str, Any]:
    return {
        "time": _now(),
        "namespace": topology.namespace,
        "topics": [asdict(count) for count in now.topics],
        "missing_topics": list(now.missing),
        "delayed_jobs": now.delayed_jobs,
        "hold_queues": [_hold_as_json(count, topology) for count in now.delayed],
        "unrouted": now.unrouted,
        "dead_lettering_jobs": now.dead_lettering,
        "management_error": now.management_error,
    }


def _hold_as_json(count: HoldCount, topology: Topology) -> dict[str, Any]:
    return {
        "hold_queue": topology.hold_queue(count.hop),
        "hold_ms": count.hop.hold_ms,
        "due_within_ms": count.due_within_ms,
        "jobs": count.jobs,
    }


def _now() -> str:
    return moment(time.time_ns() // 1_000_000)
