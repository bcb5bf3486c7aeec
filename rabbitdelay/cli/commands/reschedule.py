"""`rabbitdelay reschedule`: change the due time of jobs printed by `put --json`."""

from datetime import datetime, timedelta
from typing import BinaryIO

import click

from rabbitdelay import duration
from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.input.printed_jobs import PrintedJob, job_as_json, read_jobs
from rabbitdelay.cli.options import at_option, delay_option, json_option
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.cli.output.progress import patience
from rabbitdelay.cli.output.text import counted, moment, printable
from rabbitdelay.errors import InvalidJob
from rabbitdelay.models import Job
from rabbitdelay.sync.client import Client


@click.command(short_help="Change the due time of jobs.")
@click.argument("file", type=click.File("rb"))
@delay_option
@at_option
@json_option
@pass_settings
def reschedule(
    settings: Settings,
    file: BinaryIO,
    delay: timedelta | None,
    at: datetime | None,
    *,
    as_json: bool,
) -> None:
    """Change the due time of the jobs in FILE, or in stdin with -.

    FILE contains jobs as printed by put --json. The new jobs are printed in the same format and can
    be rescheduled again. Each job is put again with the same id and then the old one is deleted: if
    interrupted in between, both exist. A job that has already finished runs again.

    \b
    rabbitdelay put mail hello --delay 1h --json > job.json
    rabbitdelay reschedule job.json --delay 2h
    """  # noqa: D301 - click needs the character itself, to keep lines as they are
    if (delay is None) == (at is None):
        raise click.UsageError("give either --delay or --at")
    done = 0
    waiting = "waiting for the broker's confirm"
    with patience(waiting), settings.client(declares=True) as client:
        for number, read in read_jobs(file):
            try:
                job = _reschedule(client, _job(read), delay or timedelta(), at)
            except InvalidJob as error:
                done_text = f"{counted(done, 'earlier job')} rescheduled"
                raise InvalidJob(f"line {number}: {error}; {done_text}") from None
            done += 1
            print_json(job_as_json(job)) if as_json else click.echo(_summary(job))


def _job(read: str | PrintedJob) -> Job:
    if isinstance(read, str):
        raise InvalidJob(
            f"{printable(read)!r} is not a job as printed by `rabbitdelay put --json`: to "
            "reschedule a job by its id, put it again with --id and --replace"
        )
    return read.job()


def _reschedule(client: Client, job: Job, delay: timedelta, at: datetime | None) -> Job:
    try:
        return client.reschedule(job, delay=delay, at=at)
    except KeyboardInterrupt:
        text = f"job {printable(job.id)} may be due at the old time, the new one, or both"
        raise KeyboardInterrupt(text) from None


def _summary(job: Job) -> str:
    delay = duration.describe(job.due_ms - job.put_ms)
    return f"{printable(job.id)} of {job.topic} is due {moment(job.due_ms)} (in {delay})"
