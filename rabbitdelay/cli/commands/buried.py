"""`rabbitdelay buried`: list, show, kick or drop buried jobs."""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.text import Text

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.deletes import read_deletes
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.input.questions import agree_to_drop
from rabbitdelay.cli.options import json_option, read_topic
from rabbitdelay.cli.output.amqp_values import plain
from rabbitdelay.cli.output.bodies import body_lines, body_text, preview
from rabbitdelay.cli.output.console import output, print_json, print_table
from rabbitdelay.cli.output.progress import steps
from rabbitdelay.cli.output.tables import table
from rabbitdelay.cli.output.text import counted, moment, printable, relative
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.parked.parked_job import SentJobs
from rabbitdelay.core.settle.republish import TRACEBACK
from rabbitdelay.errors import (
    ConnectionFailed,
    NamespaceMissing,
    RabbitDelayError,
    TopologyMissing,
)
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.parked_jobs import BuriedJobs

_PROPERTIES = (
    *("content_type", "content_encoding", "reply_to", "correlation_id"),
    *("priority", "type", "app_id"),
)

_topic_argument = click.argument("topic", type=read_topic)
_all_option = click.option("--all", "every", is_flag=True, help="All buried jobs of the topic.")


@click.group(short_help="List, show, kick or drop buried jobs.")
def buried() -> None:
    """List, show, kick or drop the buried jobs of a topic.

    A job is buried after its last attempt, by its handler, or by the broker if its consumers keep
    dying with it. A buried job stays until you kick or drop it.
    """


@buried.command(name="list")
@_topic_argument
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Maximum number of jobs.",
)
@click.option("--id", help="Id of the job to list. Exits with 3 if it is not buried.")
@json_option
@pass_settings
def list_(settings: Settings, topic: str, limit: int, id: str | None, *, as_json: bool) -> None:
    """List the buried jobs of TOPIC and leave them in place. Deleted jobs are dropped."""
    with _looking(settings, topic) as (jobs, checks):
        found = list(jobs.list(limit=limit, id=id, check_deletes=checks))
        total = jobs.count()
    if as_json:
        dropped = jobs.dropped_deleted
        print_json(
            {"total": total, "jobs": [_as_json(one) for one in found], "dropped_deleted": dropped}
        )
    else:
        _print(found, total)
    if id is not None and not found:
        answer_no()


@buried.command(short_help="Show everything about a buried job.")
@_topic_argument
@click.argument("id")
@json_option
@pass_settings
def show(settings: Settings, topic: str, id: str, *, as_json: bool) -> None:
    """Show the times, error, headers and body of the buried job with this ID.

    Several jobs may have the same id. Exits with 3 if there is none.
    """
    with _looking(settings, topic) as (jobs, checks):
        found = jobs.show(id, check_deletes=checks)
    if not found:
        click.echo(f"no job {printable(id)} is buried in topic {topic}", err=True)
        answer_no()
    if as_json:
        print_json([_whole_as_json(one) for one in found])
        return
    for number, one in enumerate(found):
        click.echo(nl=bool(number))
        _draw(one)


@buried.command()
@_topic_argument
@click.option("--id", help="Id of the job.")
@_all_option
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs.  [default: all]")
@json_option
@pass_settings
def kick(
    settings: Settings, topic: str, id: str | None, limit: int | None, *, every: bool, as_json: bool
) -> None:
    """Make buried jobs ready now, starting again at attempt 1.

    Deleted jobs are dropped. If the command is killed halfway, a job may exist twice; it is never
    lost. Exits with 3 if no job was kicked.
    """
    _check_choice(id, every=every)
    result = _kick(settings, topic, id, limit)
    if as_json:
        dropped = {"dropped_deleted": result.dropped_deleted}
        print_json({"kicked": result.sent, "stayed": result.stayed} | dropped)
    else:
        stayed = f", {result.stayed:,} refused by the broker" if result.stayed else ""
        click.echo(f"{counted(result.sent, 'job')} kicked{stayed}")
    if not result.sent:
        answer_no()


@buried.command()
@_topic_argument
@click.option("--id", help="Id of the job.")
@_all_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@pass_settings
def drop(
    settings: Settings, topic: str, id: str | None, *, every: bool, yes: bool, as_json: bool
) -> None:
    """Remove buried jobs permanently. Exits with 3 if no job was removed."""
    _check_choice(id, every=every)
    with settings.client() as client:
        jobs = client.buried(topic)
        count = _count(settings, jobs, topic)
        chosen = count if every else sum(1 for _ in jobs.list(id=id, check_deletes=False))
    dropped = 0
    if chosen and (yes or agree_to_drop(chosen)):
        with settings.beginning_now().client() as client:
            # The user confirmed only as many jobs as were counted.
            dropped = client.buried(topic).drop(id=id, limit=chosen)
    text = f"{counted(dropped, 'job')} dropped"
    print_json({"dropped": dropped}) if as_json else click.echo(text)
    if not dropped:
        answer_no()


def _count(settings: Settings, jobs: BuriedJobs, topic: str) -> int:
    """Return the number of buried jobs; end the command if the topic does not exist."""
    try:
        return jobs.count()
    except NamespaceMissing:
        raise
    except TopologyMissing:
        name = settings.topology.buried_queue(topic)
        click.echo(f"no such topic: {topic} (there is no queue {name})", err=True)
        answer_no()


@contextmanager
def _looking(settings: Settings, topic: str) -> Iterator[tuple[BuriedJobs, bool]]:
    """Yield the buried jobs, and whether deleted ones are recognised; then report dropped ones.

    If the log of deletes cannot be read, print a note and continue without it.
    """
    with settings.client() as client:
        jobs = client.buried(topic)
        _count(settings, jobs, topic)
        yield jobs, _knows_deletes(settings, client)
        _tell_dropped(jobs.dropped_deleted)


def _knows_deletes(settings: Settings, client: Client) -> bool:
    try:
        read_deletes(client, settings.rest_seconds)
    except ConnectionFailed:
        raise
    except RabbitDelayError as error:
        click.echo(f"note: deleted jobs may be among them: {error}", err=True)
        return False
    return True


def _tell_dropped(count: int) -> None:
    if count:
        click.echo(f"{counted(count, 'deleted job')} dropped", err=True)


def _check_choice(id: str | None, *, every: bool) -> None:
    if every == (id is not None):
        raise click.UsageError("give either --id or --all")


def _kick(settings: Settings, topic: str, id: str | None, limit: int | None) -> SentJobs:
    with settings.client(declares=True) as client:
        jobs = client.buried(topic)
        count = _count(settings, jobs, topic)
        read_deletes(client, settings.rest_seconds)
        with steps("kicking", count if limit is None else min(limit, count)) as advance:
            result = _kick_telling(jobs, id, limit, advance)
    _tell_dropped(result.dropped_deleted)
    return result


def _kick_telling(
    jobs: BuriedJobs, id: str | None, limit: int | None, advance: Callable[[str | None], None]
) -> SentJobs:
    kicked = 0

    def tried(one: BuriedJob, sent: bool) -> None:  # noqa: FBT001 - the signature of on_tried
        nonlocal kicked
        kicked += sent
        advance(None)
        if not sent:
            click.echo(f"stays: {printable(one.id or 'without an id')}", err=True)

    try:
        return jobs.kick(id=id, limit=limit, on_tried=tried)
    except KeyboardInterrupt:
        text = f"{counted(kicked, 'job')} kicked; the last of them may still be buried too"
        raise KeyboardInterrupt(text) from None


# Text output


def _print(found: list[BuriedJob], total: int) -> None:
    if found:
        rows = table("id", "attempts", "buried", "why", numbers=("attempts",))
        for column in rows.columns[:-1]:
            column.no_wrap = True  # on a narrow terminal the reason is truncated first
        now_ms = time.time_ns() // 1_000_000
        for one in found:
            attempts = "?" if one.attempt is None else f"{one.attempt:,}"
            when = "" if one.buried_ms is None else relative(one.buried_ms, now_ms)
            why = Text(printable(_why(one)), no_wrap=True, overflow="ellipsis")
            rows.add_row(printable(one.id or ""), attempts, when, why)
        print_table(rows)
        click.echo()
    click.echo(f"{len(found):,} of {counted(total, 'buried job')}")


def _why(one: BuriedJob) -> str:
    error = one.last_error
    return f"{one.reason}; {error}" if error else one.reason


def _draw(one: BuriedJob) -> None:
    console = output()
    for name, value in _facts(one):
        for number, line in enumerate(value.splitlines()):
            title = "" if number else name
            console.print(Text.assemble((f"{title:16}", "dim"), printable(line)), soft_wrap=True)
    console.print(Text(f"body, {counted(len(one.payload), 'byte')}", "dim"))
    for text in body_lines(one.payload):
        console.print(Text(f"  {text}"), soft_wrap=True)


def _facts(one: BuriedJob) -> Iterator[tuple[str, str]]:
    yield "id", one.id or "none"
    yield "topic", one.topic
    yield "attempts", "?" if one.attempt is None else f"{one.attempt:,}"
    yield from _times(one)
    yield "why", one.reason
    if one.last_error:
        yield "last error", one.last_error
    if one.traceback:
        yield "traceback", one.traceback
    for name in _PROPERTIES:
        if (value := getattr(one.message, name)) is not None:
            yield name.replace("_", " "), str(value)
    yield from _headers(one)


def _times(one: BuriedJob) -> Iterator[tuple[str, str]]:
    now_ms = time.time_ns() // 1_000_000
    times = {"put": one.put_ms, "due": one.due_ms, "buried": one.buried_ms}
    for name, time_ms in times.items():
        if time_ms is not None:
            yield name, f"{moment(time_ms)} ({relative(time_ms, now_ms)})"


def _headers(one: BuriedJob) -> Iterator[tuple[str, str]]:
    """Yield each header as JSON; a list, such as the broker's x-death, has a line for each item."""
    title = "headers"
    for name, value in sorted(one.headers.items()):
        if name == TRACEBACK and one.traceback:
            continue  # shown above, line by line
        for item in value if isinstance(value, list) else [value]:
            yield title, f"{name} {json.dumps(plain(item), ensure_ascii=False)}"
            title = ""


# JSON output


def _as_json(one: BuriedJob) -> dict[str, Any]:
    return {
        "id": one.id,
        "topic": one.topic,
        "attempts": one.attempt,
        "put": _moment(one.put_ms),
        "due": _moment(one.due_ms),
        "buried": _moment(one.buried_ms),
        "reason": one.reason,
        "error": one.error,
        "error_type": one.error_type,
        "traceback": one.traceback,
        "content_type": one.message.content_type,
        "body_bytes": len(one.payload),
        "body_preview": preview(one.payload),
    }


def _whole_as_json(one: BuriedJob) -> dict[str, Any]:
    """Return all fields and the whole body, in base64 if it is not text."""
    text = body_text(one.payload)
    encoded = None if text is not None else b64encode(one.payload).decode()
    properties = {name: getattr(one.message, name) for name in _PROPERTIES}
    whole = _as_json(one) | properties | {"headers": plain(one.headers)}
    return whole | {"body_text": text, "body_base64": encoded}


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else moment(time_ms)
