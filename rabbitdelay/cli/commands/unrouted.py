"""`rabbitdelay unrouted`: list, retry or drop unrouted jobs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.text import Text

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.input.questions import agree_to_drop
from rabbitdelay.cli.options import json_option
from rabbitdelay.cli.output.bodies import preview
from rabbitdelay.cli.output.console import print_json, print_table
from rabbitdelay.cli.output.progress import steps
from rabbitdelay.cli.output.tables import table
from rabbitdelay.cli.output.text import counted, moment, printable, relative
from rabbitdelay.core.parked.unrouted import UnroutedJob
from rabbitdelay.sync.parked_jobs import UnroutedJobs

_topic_option = click.option("--topic", help="Topic of the jobs.")
_id_option = click.option("--id", help="Id of the job.")


@click.group()
def unrouted() -> None:
    """List, retry or drop unrouted jobs.

    A job whose next queue does not exist is parked here with all its headers.
    """


@unrouted.command(name="list")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Maximum number of jobs.",
)
@_topic_option
@click.option("--id", help="Id of the job to list. Exits with 3 if it is not here.")
@json_option
@pass_settings
def list_(
    settings: Settings, limit: int, topic: str | None, id: str | None, *, as_json: bool
) -> None:
    """List unrouted jobs and leave them in place."""
    with settings.client() as client:
        jobs = client.unrouted()
        total = jobs.count()
        found = list(jobs.list(limit=limit, topic=topic, id=id))
    if as_json:
        print_json({"total": total, "jobs": [_as_json(one) for one in found]})
    else:
        _print(found, total)
    if id is not None and not found:
        answer_no()


@unrouted.command(short_help="Send unrouted jobs on with their remaining delay.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs.  [default: all]")
@_topic_option
@_id_option
@json_option
@pass_settings
def retry(
    settings: Settings, limit: int | None, topic: str | None, id: str | None, *, as_json: bool
) -> None:
    """Send unrouted jobs on with their remaining delay, and create missing topics.

    A message that cannot be decoded stays. If the command is killed halfway, a job may exist
    twice; it is never lost. Exits with 3 if no job was sent on.
    """
    with _sending(settings) as jobs, steps("sending on", jobs.count()) as advance:

        def tried(one: UnroutedJob, sent: bool) -> None:  # noqa: FBT001 - the signature of on_tried
            advance(None)
            if not sent:
                click.echo(f"stays: {printable(one.id or 'without an id')}: {one.why}", err=True)

        result = jobs.retry(topic=topic, id=id, limit=limit, on_tried=tried)
    if as_json:
        print_json({"sent": result.sent, "stayed": result.stayed})
    else:
        stay = "stays" if result.stayed == 1 else "stay"
        click.echo(f"{counted(result.sent, 'job')} sent on, {result.stayed:,} {stay}")
    if not result.sent:
        answer_no()


@unrouted.command()
@_topic_option
@_id_option
@click.option("--all", "every", is_flag=True, help="All jobs, and messages that cannot be decoded.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@pass_settings
def drop(
    settings: Settings,
    topic: str | None,
    id: str | None,
    *,
    every: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove unrouted jobs permanently. Exits with 3 if no job was removed."""
    if every == bool(topic or id):
        raise click.UsageError("give --topic, --id, or --all")
    with settings.client() as client:
        jobs = client.unrouted()
        chosen = jobs.count() if every else sum(1 for _ in jobs.list(topic=topic, id=id))
    dropped = 0
    if chosen and (yes or agree_to_drop(chosen)):
        with settings.beginning_now().client() as client:
            # The user confirmed only as many jobs as were counted.
            dropped = client.unrouted().drop(topic=topic, id=id, limit=chosen)
    text = f"{counted(dropped, 'job')} dropped"
    print_json({"dropped": dropped}) if as_json else click.echo(text)
    if not dropped:
        answer_no()


@contextmanager
def _sending(settings: Settings) -> Iterator[UnroutedJobs]:
    """Yield the unrouted jobs of a client that is not connected yet.

    A client sends on unrouted jobs by itself when it connects.
    """
    with settings.client(declares=True, connects=False) as client:
        yield client.unrouted()


def _print(found: list[UnroutedJob], total: int) -> None:
    if found:
        rows = table("id", "topic", "due", "why", "body")
        for column in rows.columns[:-1]:
            column.no_wrap = True  # on a narrow terminal the body is truncated first
        now_ms = time.time_ns() // 1_000_000
        for one in found:
            due = "" if one.due_ms is None else relative(one.due_ms, now_ms)
            body = Text(printable(preview(one.payload)), no_wrap=True, overflow="ellipsis")
            rows.add_row(printable(one.id or ""), one.topic or "", due, one.why, body)
        print_table(rows)
        click.echo()
    click.echo(f"{len(found):,} of {counted(total, 'unrouted job')}")


def _as_json(one: UnroutedJob) -> dict[str, Any]:
    return {
        "id": one.id,
        "topic": one.topic,
        "due": None if one.due_ms is None else moment(one.due_ms),
        "why": one.why,
        "exchange": one.exchange,
        "routing_key": one.routing_key,
        "content_type": one.message.content_type,
        "body_bytes": len(one.payload),
        "body_preview": preview(one.payload),
    }
