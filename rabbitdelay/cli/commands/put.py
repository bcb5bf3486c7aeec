"""`rabbitdelay put`: put one job from the command line, or many from a file."""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from rabbitdelay import duration
from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.input.job_lines import JobLines
from rabbitdelay.cli.input.printed_jobs import job_as_json
from rabbitdelay.cli.options import (
    at_option,
    delay_option,
    json_option,
    read_duration,
    read_headers,
    read_single_backoff,
    read_topic,
)
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.cli.output.progress import ReadingProgress, patience, reading
from rabbitdelay.cli.output.text import counted, moment
from rabbitdelay.core.jobs.validation import DEFAULT_MAX_BODY_BYTES
from rabbitdelay.errors import PutManyFailed
from rabbitdelay.models import BYTES, JSON, TEXT, JobSpec

_WAITING = "waiting for the broker's confirm"


@click.command(short_help="Put a job, or many from a file.")
@click.argument("topic", type=read_topic, required=False)
@click.argument("body", required=False)
@delay_option
@at_option
@click.option(
    "--ttr",
    type=read_duration,
    metavar="DURATION",
    help="Time that one consumer has to process the job.  [default: the handler's, or 60s]",
)
@click.option("--id", help="Id of the job, for deleting it.  [default: generated]")
@click.option(
    "--replace",
    is_flag=True,
    help="Delete all jobs put with this --id before.",
)
@click.option(
    "--max-attempts",
    type=int,
    help="Maximum attempts before the job is buried.  [default: the handler's, or 10]",
)
@click.option(
    "--backoff",
    type=read_single_backoff,
    metavar="DURATION",
    help="Delay before the second attempt, then doubled each time.  [default: the handler's]",
)
@click.option(
    "--backoff-max",
    type=read_duration,
    metavar="DURATION",
    help="Upper bound of the backoff.  [default: the handler's]",
)
@click.option("--reply-to", help="Queue that receives the handler's return value.")
@click.option("--callback", help="http or https URL for consumers that call one.")
@click.option("--content-type", help="Media type of BODY, if it is neither JSON nor text.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=read_headers,
    metavar="NAME=VALUE",
    help="Header of the job, for its handler. Repeatable.",
)
@click.option(
    "--file",
    type=click.File("rb"),
    help="File with one job per line (jobs.jsonl), or - for stdin. TOPIC applies to lines without "
    "a topic.",
)
@json_option
@pass_settings
def put(
    settings: Settings,
    /,
    topic: str | None,
    body: str | None,
    file: BinaryIO | None,
    *,
    replace: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - the options of a job, named as in Client.put
) -> None:
    """Put a job of TOPIC and return once the broker has confirmed it.

    BODY is sent unchanged, as JSON if it is valid JSON and as text otherwise; - reads it from
    stdin. Without BODY, the body is null.

    \b
    rabbitdelay put orderclose '{"order": 42}' --delay 30m --id orderclose-42
    rabbitdelay put orderclose '{"order": 42}' --delay 1h --id order-42 --replace
    rabbitdelay put mail --file jobs.jsonl
    """  # noqa: D301 - click needs the character itself, to keep lines as they are
    given = {name: value for name, value in options.items() if value is not None}
    if file is not None:
        _refuse_with_file(body, given | ({"replace": True} if replace else {}))
        _put_many(settings, file, topic, as_json=as_json)
    elif topic is None:
        raise click.UsageError("give a TOPIC or --file")
    elif replace and "id" not in given:
        raise click.UsageError("--replace requires --id, the job to replace")
    else:
        _put_one(settings, topic, body, given, replace=replace, as_json=as_json)


def _put_one(
    settings: Settings,
    topic: str,
    body: str | None,
    options: dict[str, Any],
    *,
    replace: bool,
    as_json: bool,
) -> None:
    payload = _payload(body)
    options.setdefault("content_type", _content_type(payload))
    with patience(_WAITING), settings.client(declares=True, creates_namespace=True) as client:
        try:
            put_or_replace = client.replace if replace else client.put
            job = put_or_replace(topic, payload, **options)
        except KeyboardInterrupt:
            name = f"job {options['id']}" if "id" in options else "the job"
            raise KeyboardInterrupt(f"{name} may or may not arrive") from None
    if as_json:
        print_json(job_as_json(job))
    else:
        delay = duration.describe(job.due_ms - job.put_ms)
        alone = ", replacing earlier jobs with this id" if replace else ""
        click.echo(f"put {job.id} to {job.topic}, due {moment(job.due_ms)} (in {delay}){alone}")


def _put_many(settings: Settings, file: BinaryIO, topic: str | None, *, as_json: bool) -> None:
    if file.isatty():
        click.echo(
            "reading jobs from the terminal, one JSON object per line; Ctrl-D ends", err=True
        )
    with reading(file, "confirmed", at_first=_WAITING) as progress:
        lines = JobLines(file, default_topic=topic, on_line=progress.read)
        try:
            confirmed = _put_lines(settings, lines, progress)
        except KeyboardInterrupt:
            text = f"{counted(progress.count, 'job')} confirmed; a few more may have arrived"
            raise KeyboardInterrupt(text) from None
    if as_json:
        print_json({"confirmed": confirmed})
    else:
        click.echo(f"{counted(confirmed, 'job')} confirmed")


def _put_lines(settings: Settings, lines: JobLines, progress: ReadingProgress) -> int:
    with settings.client(declares=True, creates_namespace=True) as client:
        try:
            return client.put_many(
                _until_read(lines, progress), on_confirmed=lambda _: progress.confirmed()
            )
        except PutManyFailed as failure:
            raise lines.explain(failure) from failure.__cause__


def _until_read(lines: JobLines, progress: ReadingProgress) -> Iterator[JobSpec]:
    """Yield the jobs of a file; after the last one, show the outstanding confirms."""
    count = 0
    for count, spec in enumerate(lines, start=1):  # noqa: B007 - the final value is the number of jobs
        yield spec
    progress.is_read(count, _WAITING)


def _refuse_with_file(body: str | None, options: dict[str, Any]) -> None:
    names = [f"--{name.replace('_', '-').replace('headers', 'header')}" for name in options]
    if refused := (["BODY"] if body is not None else []) + names:
        raise click.UsageError(
            f"{', '.join(refused)} cannot be combined with --file: set them in each line"
        )


def _payload(argument: str | None) -> bytes:
    if argument is None:
        return b"null"
    if argument == "-":
        return sys.stdin.buffer.read(DEFAULT_MAX_BODY_BYTES + 1)
    return os.fsencode(argument)


def _content_type(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return BYTES
    return JSON if _is_json(text) else TEXT


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> None:
    """Reject NaN and Infinity, which Python's parser accepts but JSON does not allow."""
    raise ValueError(name)
