"""`rabbitdelay stats`: count jobs by state, and delayed jobs by when they are due."""

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
from rabbitdelay.cli.output.console import output, print_json, print_table
from rabbitdelay.cli.output.progress import patience
from rabbitdelay.cli.output.tables import pauses_unknown, topics_table
from rabbitdelay.cli.output.text import counted, moment
from rabbitdelay.core.administration.counts import HoldCount, Statistics, TopicCounts
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.private_broker.machine import signals

_SHORTEST_INTERVAL = timedelta(milliseconds=100)
_DEFAULT_INTERVAL = timedelta(seconds=1)

_ANSWER_SECONDS = 3.0
"""Seconds without an answer after which `--watch` reports a lost connection."""

_LABEL_WIDTH = 10
_BAR_WIDTH = 44
_FIXED_LINES = 9
"""The title, the headings, the blank lines and the line of the cursor."""
_FEWEST_ROWS = 3
_NO_EDGE = 10_000
_DOCTOR = "`rabbitdelay doctor`"


@click.command(short_help="Count all jobs, and delayed jobs by when they are due.")
@click.argument("names", metavar="[TOPIC]...", type=read_topic, nargs=-1)
@click.option("--watch", is_flag=True, help="Refresh the counts until Ctrl-C.")
@click.option(
    "--interval",
    type=read_duration,
    metavar="DURATION",
    help="Time between two refreshes, for --watch.  [default: 1s]",
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
    """Count the jobs of all topics, or of TOPICs, and delayed jobs by when they are due.

    Delayed jobs are counted for the whole namespace, because all topics share the hold queues. A
    job leaves the hold queue 30m within 30m and may have seconds left to wait, so it is due within
    31m. Exits with 3 if a TOPIC does not exist.
    """
    if interval is not None and not watch:
        raise click.UsageError("--interval requires --watch")
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
    """The broker and the topics; the broker is located once, even if its connection is lost."""

    settings: Settings
    names: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings, names: tuple[str, ...]) -> Self:
        return cls(replace(settings, url=discovery.locate_url(settings.url)), names)

    def look(self) -> Statistics:
        """Connect and return the current counts."""
        with self.settings.client() as client:
            return client.stats(*self.names)

    def look_on(self, interval_seconds: float) -> Generator[Statistics, None, None]:
        """Yield the counts at this interval until the broker does not respond."""
        seconds = min(_ANSWER_SECONDS, self.settings.timeout.total_seconds())
        with self.settings.observer(seconds) as client:
            while True:
                yield client.stats(*self.names)
                time.sleep(interval_seconds)


# --watch


class _Screen(Protocol):
    """Output of `--watch`."""

    def show(self, now: Statistics) -> None:
        """Show the counts."""

    def tell(self, trouble: str) -> None:
        """Show why counting failed."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Prints a line of JSON for each refresh."""

    topology: Topology

    def show(self, now: Statistics) -> None:
        click.echo(json.dumps(_as_json(now, self.topology)))

    def tell(self, trouble: str) -> None:
        click.echo(json.dumps({"time": _now(), "error": trouble}))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Prints a block of text for each refresh, below the previous one."""

    console: Console

    def show(self, now: Statistics) -> None:
        click.echo(_now())
        print_table(_picture(_busiest_first(now), self.console))
        click.echo()

    def tell(self, trouble: str) -> None:
        click.echo(f"{_now()}\n{trouble}\n")


@dataclass(slots=True)
class _InPlace:
    """Redraws the counts in place on a terminal."""

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
    """Refresh until Ctrl-C, which is the normal end and not an error."""
    with (
        suppress(KeyboardInterrupt),
        signals.interrupting(),
        _screen(lookout.settings.topology, as_json=as_json) as screen,
    ):
        looks = lookout.look_on(interval_seconds)
        screen.show(next(looks))  # a failure of the first refresh is an error
        while True:
            try:
                for now in looks:
                    screen.show(now)
            except RabbitDelayError as error:
                screen.tell(f"no connection, trying again: {error}")
            time.sleep(interval_seconds)
            looks = lookout.look_on(interval_seconds)


# Text output


def _busiest_first(now: Statistics) -> Statistics:
    """Return the counts with the busiest topics first, because a small terminal cuts the rest."""
    return replace(now, topics=tuple(sorted(now.topics, key=_business)))


def _business(count: TopicCounts) -> tuple[int, int, str]:
    return -(count.ready or 0) - (count.reserved or 0), -(count.buried or 0), count.topic


def _picture(now: Statistics, console: Console) -> RenderableType:
    """Return the topics, the delayed jobs and the remarks, sized to fit the terminal if any."""
    remarks = [*_remarks(now)]
    room = console.height - _FIXED_LINES - len(remarks) if console.is_terminal else _NO_EDGE
    most_bars = max(room // 2, room - len(now.topics), _FEWEST_ROWS)
    delayed = _delayed(now, most_bars, console)
    topics = _topics(now, max(room - min(len(now.delayed), most_bars), _FEWEST_ROWS))
    return Group(*topics, "", *delayed, *([""] if remarks else []), *remarks)


def _topics(now: Statistics, most: int) -> Iterator[RenderableType]:
    if not now.topics:
        known = now.missing or now.management_error is None
        yield Text("no topics" if known else "the topics are unknown")
        return
    shown = now.topics if len(now.topics) <= most else now.topics[: most - 1]
    yield topics_table(shown)
    if rest := len(now.topics) - len(shown):
        yield Text(f"… and {counted(rest, 'more topic')}; give topics to see them", "dim")


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
    """Return the counts to show, in order: all, or the largest and one line less for the rest."""
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
        yield _line(f"{jobs} on the way between queues; if this persists, run {_DOCTOR}", "yellow")
    if now.missing:
        yield _line(f"no such topic: {', '.join(now.missing)}", "bold red")
    if now.deletes_error:
        yield _line(pauses_unknown(now), "yellow")
    if now.management_error:
        lost = "only named topics are counted, without their reserved jobs"
        yield _line(f"{lost}: {now.management_error}", "yellow")


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


# JSON output


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
