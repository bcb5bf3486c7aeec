"""`rabbitdelay pop`: print and finish the next job, or run a command on it."""

import json
from datetime import timedelta

import click

from rabbitdelay.actions.command.command import BURY_EXIT_CODE, Command
from rabbitdelay.actions.print_json import job_as_json
from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import ExitCode, answer_no
from rabbitdelay.cli.options import allow_reply_to_option, json_option, read_duration, read_topic
from rabbitdelay.cli.output.progress import patience
from rabbitdelay.cli.output.text import printable
from rabbitdelay.core.work import exceptions
from rabbitdelay.core.work.exceptions import GiveUpNow
from rabbitdelay.executors.reserved_job import ReservedJob
from rabbitdelay.sync.client import Client, read_tombstones


@click.command(short_help="Print the next job and finish it.")
@click.argument("topics", metavar="TOPIC...", type=read_topic, nargs=-1, required=True)
@click.option(
    "--wait",
    type=read_duration,
    metavar="DURATION",
    default="0",
    help="Time to wait for a job.  [default: 0s]",
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Maximum number of jobs.",
)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Shell command to run on each job: exit code 0 finishes the job, "
    f"{BURY_EXIT_CODE} buries it, any other releases it.",
)
@allow_reply_to_option
@json_option
@pass_settings
def pop(
    settings: Settings,
    topics: tuple[str, ...],
    wait: timedelta,
    most: int,
    command: str | None,
    *,
    allow_reply_to: tuple[str, ...],
    as_json: bool,
) -> None:
    """Reserve the next job of TOPICs, print its body and finish it.

    With --json, each job is printed as a line of JSON. A job is finished once it has been printed,
    and released if printing fails. Exits with 3 if there was no job, and with 1 if COMMAND failed.
    """
    if command is not None and as_json:
        raise click.UsageError(
            "--json cannot be combined with --exec: the output is that of COMMAND"
        )
    with patience("waiting for a job"), settings.client(allow_reply_to=allow_reply_to) as client:
        jobs = client.pop(topics, max=most, wait=wait)
        if not jobs:
            log_reader = read_tombstones(client, settings.rest_seconds)
            paused = set() if log_reader is None else log_reader.known.paused().intersection(topics)
            click.echo(f"no job received{_why(client, topics, paused)}", err=True)
            answer_no()
        if command is not None:
            _run(jobs, command)
            return
        for job in jobs:
            with job:
                _print(job, as_json=as_json)


def _why(client: Client, topics: tuple[str, ...], paused: set[str]) -> str:
    """Return the known reasons why no job was received."""
    missing = [topic for topic in topics if client.count(topic) is None]
    reasons = [f"no such topic: {topic}" for topic in missing]
    reasons += [f"paused: {topic}" for topic in sorted(paused)]
    return f" ({', '.join(reasons)})" if reasons else ""


def _print(job: ReservedJob, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(job_as_json(job), ensure_ascii=False))
    else:
        click.echo(job.payload)


def _run(jobs: list[ReservedJob], command: str) -> None:
    """Run the command on one job after another."""
    failed = False
    with Command(command) as action:
        for job in jobs:
            failed |= not _run_one(action, job)
    if failed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _run_one(action: Command, job: ReservedJob) -> bool:
    try:
        action(job)
    except Exception as error:  # noqa: BLE001 - the job is released after any error
        decision = exceptions.of(error)
        if isinstance(decision, GiveUpNow):
            job.bury(decision.reason)
        else:
            job.release()
        fate = "buried" if isinstance(decision, GiveUpNow) else "released"
        click.echo(f"{printable(job.id)}: {fate}: {printable(str(error))}", err=True)
        return False
    job.finish()
    return True
