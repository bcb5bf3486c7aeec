"""`rabbitdelay consume`: a worker whose handler is a function, a command, a URL, or a line."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TextIO, cast

import click

from rabbitdelay import aio
from rabbitdelay.actions.command.command import BURY_EXIT_CODE, Command
from rabbitdelay.actions.import_handler import load_handler
from rabbitdelay.actions.print_json import JobPrinter
from rabbitdelay.actions.webhook.allow_list import AllowList
from rabbitdelay.actions.webhook.webhook import Webhook
from rabbitdelay.cli.context import AnyWorker, Settings, pass_settings
from rabbitdelay.cli.exit_codes import ExitCode
from rabbitdelay.cli.options import allow_reply_to_option, read_backoff, read_duration, read_topic
from rabbitdelay.cli.worker_log import json_log, log_totals, plain_log
from rabbitdelay.cli.worker_status import live_status, summary
from rabbitdelay.core.work.handlers import is_async
from rabbitdelay.core.work.retry import (
    DEFAULT_BACKOFF_MAX_SECONDS,
    DEFAULT_BACKOFF_SECONDS,
    DEFAULT_MAX_ATTEMPTS,
    Backoff,
)
from rabbitdelay.executors.reserved_job import ReservedJob
from rabbitdelay.executors.thread_executor import PoolKind
from rabbitdelay.sync.worker import Worker

Function = Callable[..., Any]

_DEFAULT_CONCURRENCY = 10
_DEFAULT_GRACE = timedelta(seconds=30)
_CALLBACK = ""
"""What `--webhook` without a URL is: each job's own callback."""


@click.command(
    short_help="Run a function, a command or a webhook for each job.",
    epilog=f"""\b
What a command of --exec gets: the body on stdin, and in its environment
RABBITDELAY_JOB_ID, _TOPIC, _ATTEMPT, _DUE, _DUE_MS, _TTR_MS, _CONTENT_TYPE, _CALLBACK.
Exit code 0 finishes the job, {BURY_EXIT_CODE} buries it, any other gives it back.
""",
)
@click.argument("topics", metavar="TOPIC...", type=read_topic, nargs=-1, required=True)
@click.option("--handler", metavar="MODULE:FUNCTION", help="Call a function, sync or async.")
@click.option(
    "--exec", "command", metavar="COMMAND", help="Run a shell command, which is killed at the ttr."
)
@click.option(
    "--webhook",
    metavar="[URL]",
    is_flag=False,
    flag_value=_CALLBACK,
    help="POST the body to URL, or without one to the job's own callback: 2xx finishes, 410 "
    "buries, others give it back; Retry-After is obeyed.",
)
@click.option("--print", "prints", is_flag=True, help="Print a line of JSON for each job.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help=f"How many at once.  [default: {_DEFAULT_CONCURRENCY}; with --print 1]",
)
@click.option(
    "--pool",
    type=click.Choice(["thread", "process"]),
    default="thread",
    show_default=True,
    help="Where --handler runs: processes are killed at the ttr.",
)
@click.option("--max-jobs", type=click.IntRange(1), help="Stop after so many.")
@click.option("--until-empty", is_flag=True, help="Stop when no job is ready.")
@click.option(
    "--grace",
    type=read_duration,
    metavar="DURATION",
    default=None,
    help="How long jobs may take to finish after SIGTERM or Ctrl-C.  [default: 30s]",
)
@click.option(
    "--ttr",
    type=read_duration,
    metavar="DURATION",
    help="How long a job may be held whose putter did not say.  [default: 60s]",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    default=DEFAULT_MAX_ATTEMPTS,
    show_default=True,
    help="How often a job is tried that does not say so itself.",
)
@click.option(
    "--backoff",
    type=read_backoff,
    metavar="DURATION[,...]",
    help="Wait before the second attempt, which doubles with each; or the waits one after the "
    "other, as in 5s,15s,30s,1m, of which the last repeats.  [default: 1s]",
)
@click.option(
    "--backoff-max",
    type=read_duration,
    metavar="DURATION",
    help="What backoff does not grow beyond.  [default: 1h]",
)
@click.option(
    "--timeout-delay",
    type=read_duration,
    metavar="DURATION",
    help="Wait before the next attempt of a job whose ttr has passed.  [default: 0s]",
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="HOST[:PORT]",
    multiple=True,
    help="A host that a job's callback may name: example.com, *.example.com, or with a port other "
    "than 80 and 443 example.com:8443. Can be given several times.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Let callbacks lead to loopback and private addresses.",
)
@allow_reply_to_option
@pass_settings
def consume(
    settings: Settings,
    /,
    topics: tuple[str, ...],
    concurrency: int | None,
    max_jobs: int | None,
    *,
    allow_reply_to: tuple[str, ...],
    until_empty: bool,
    pool: str,
    grace: timedelta | None,
    ttr: timedelta | None,
    max_attempts: int,
    backoff: Backoff | None,
    backoff_max: timedelta | None,
    timeout_delay: timedelta | None,
    **action: Any,  # noqa: ANN401 - the options that say what is done
) -> None:
    """Run something for each job of TOPICs, until SIGTERM or Ctrl-C.

    A job is held for at most its ttr. What fails comes back with backoff, and is buried in the end.
    A second Ctrl-C ends it at once. On a terminal it shows what goes on; else it logs JSON lines
    on stderr, with `rabbitdelay -v consume` one for each job.

    \b
    rabbitdelay consume orderclose --handler shop.orders:close --concurrency 20
    rabbitdelay consume orderclose --exec 'jq .order | xargs close-order'
    rabbitdelay consume orderclose --webhook https://shop.example/close
    """  # noqa: D301 - click needs the character itself, to keep lines as they are
    with ExitStack() as stack:
        function = _function(stack, **action)
        if pool == "process" and action["handler"] is None:
            raise click.UsageError("--pool process is for --handler")
        alone = action["prints"] and concurrency is None
        worker = settings.worker(
            aio.Worker if is_async(function) and pool == "thread" else Worker,
            concurrency=1 if alone else concurrency or _DEFAULT_CONCURRENCY,
            pool=cast("PoolKind", pool),
            grace=_DEFAULT_GRACE if grace is None else grace,
            allow_reply_to=allow_reply_to,
        )
        for topic in topics:
            worker.handler(
                topic,
                ttr=ttr,
                max_attempts=max_attempts,
                backoff=DEFAULT_BACKOFF_SECONDS if backoff is None else backoff,
                backoff_max=DEFAULT_BACKOFF_MAX_SECONDS if backoff_max is None else backoff_max,
                timeout_delay=timeout_delay or timedelta(),
            )(_stopping(function, worker) if action["prints"] else function)
        with _telling(settings, worker, topics, quiet=action["prints"] or bool(action["command"])):
            running = worker.run(max_jobs=max_jobs, until_empty=until_empty, handle_signals=True)
            if running is not None:
                asyncio.run(running)
    if worker.was_stopped_at_once:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _function(
    stack: ExitStack,
    handler: str | None,
    command: str | None,
    webhook: str | None,
    hosts: Sequence[str],
    *,
    prints: bool,
    allow_private: bool,
) -> Function:
    """What is done with each job: exactly one of four."""
    given = [handler is not None, command is not None, webhook is not None, prints]
    if sum(given) != 1:
        number = "one" if not any(given) else "only one"
        raise click.UsageError(
            f"say what to do: {number} of --handler, --exec, --webhook or --print"
        )
    if webhook == _CALLBACK and not hosts:
        raise click.UsageError(
            "callbacks are chosen by whoever puts jobs: name the hosts that may be called with "
            "--allow-host (and --allow-private for loopback and private addresses)"
        )
    if (hosts or allow_private) and webhook != _CALLBACK:
        raise click.UsageError("--allow-host and --allow-private are for --webhook without a URL")
    if handler is not None:
        return load_handler(handler)
    if command is not None:
        return _of_job(stack.enter_context(Command(command)))
    if webhook is not None:
        allowed = AllowList.parse(hosts, allow_private=allow_private)
        return _of_job(Webhook(webhook or None, allowed=allowed))
    return _of_job(JobPrinter())


def _of_job(action: Callable[[ReservedJob], None]) -> Function:
    """An action as a handler that takes the job alone, whatever its body is."""

    def function(job: ReservedJob) -> None:
        action(job)

    return function


def _stopping(function: Function, worker: AnyWorker) -> Function:
    """Stop when nobody reads any more what is printed: no later job would be printed either."""

    def printing(job: ReservedJob) -> None:
        try:
            function(job)
        except OSError:
            worker.stop()
            job.release(delay=0)
            raise

    return printing


@contextmanager
def _telling(
    settings: Settings, worker: AnyWorker, topics: Sequence[str], *, quiet: bool
) -> Iterator[None]:
    """Show what goes on, for people or for programs.

    `quiet` is for what writes to the terminal itself: a line that is redrawn would be torn by it.
    """
    on_terminal = _is_terminal(sys.stderr)
    if on_terminal and quiet and _is_terminal(sys.stdout):
        with plain_log():
            yield
        click.echo(summary(worker.stats()), err=True)
        return
    if on_terminal:
        with live_status(settings, worker, topics):
            yield
        return
    with json_log(every_job=settings.verbose):
        yield
        log_totals(worker.stats())


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
