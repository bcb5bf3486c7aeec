"""`rabbitdelay consume`: a worker that runs a function, a command or a webhook, or prints jobs."""

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TextIO, cast

import click

from rabbitdelay.actions.command.command import BURY_EXIT_CODE, Command
from rabbitdelay.actions.import_handler import load_handler
from rabbitdelay.actions.print_json import JobPrinter
from rabbitdelay.actions.webhook.allow_list import AllowList
from rabbitdelay.actions.webhook.webhook import Webhook
from rabbitdelay.cli.context import AnyWorker, Settings, pass_settings
from rabbitdelay.cli.exit_codes import ExitCode
from rabbitdelay.cli.options import allow_reply_to_option, read_backoff, read_duration, read_topic
from rabbitdelay.cli.output.closed_pipe import watching_stdout
from rabbitdelay.cli.output.worker_log import json_log, log_totals, plain_log
from rabbitdelay.cli.output.worker_status import live_status, summary
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
"""Value of `--webhook` without a URL, which means each job's own callback."""


@click.command(
    short_help="Run a function, a command or a webhook for each job.",
    epilog=f"""\b
A command run by --exec receives the body on stdin, and in its environment
RABBITDELAY_JOB_ID, _TOPIC, _ATTEMPT, _DUE, _DUE_MS, _TTR_MS, _CONTENT_TYPE,
_CALLBACK and _HEADERS.
Exit code 0 finishes the job, {BURY_EXIT_CODE} buries it, any other retries it.
""",
)
@click.argument("topics", metavar="TOPIC...", type=read_topic, nargs=-1, required=True)
@click.option(
    "--handler", metavar="MODULE:FUNCTION", help="Function to call for each job, sync or async."
)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Shell command to run for each job; killed at the end of the ttr.",
)
@click.option(
    "--webhook",
    metavar="[URL]",
    is_flag=False,
    flag_value=_CALLBACK,
    help="URL to POST the body to; without URL, the job's own callback. 2xx finishes the job, 410 "
    "buries it, others retry it; Retry-After is honoured.",
)
@click.option("--print", "prints", is_flag=True, help="Print each job as a line of JSON.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help=f"Number of jobs in parallel.  [default: {_DEFAULT_CONCURRENCY}; with --print 1]",
)
@click.option(
    "--pool",
    type=click.Choice(["thread", "process"]),
    default="thread",
    show_default=True,
    help="Threads or processes for --handler; processes are killed at the end of the ttr.",
)
@click.option("--max-jobs", type=click.IntRange(1), help="Number of jobs after which to stop.")
@click.option("--until-empty", is_flag=True, help="Stop when no job is ready.")
@click.option(
    "--grace",
    type=read_duration,
    metavar="DURATION",
    default=None,
    help="Time that running jobs have to finish after SIGTERM or Ctrl-C.  [default: 30s]",
)
@click.option(
    "--ttr",
    type=read_duration,
    metavar="DURATION",
    help="Time to run of jobs that do not set their own.  [default: 60s]",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    default=DEFAULT_MAX_ATTEMPTS,
    show_default=True,
    help="Maximum attempts for jobs that do not set their own.",
)
@click.option(
    "--backoff",
    type=read_backoff,
    metavar="DURATION[,...]",
    help="Delay before the second attempt, doubled with each further one; or a list of delays such "
    "as 5s,15s,30s,1m, of which the last repeats.  [default: 1s]",
)
@click.option(
    "--backoff-max",
    type=read_duration,
    metavar="DURATION",
    help="Upper bound of the backoff.  [default: 1h]",
)
@click.option(
    "--timeout-delay",
    type=read_duration,
    metavar="DURATION",
    help="Delay before the next attempt of a job that exceeded its ttr.  [default: 0s]",
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="HOST[:PORT]",
    multiple=True,
    help="Host that a job's callback may refer to: example.com, *.example.com, or "
    "example.com:8443 for a port other than 80 and 443. Repeatable.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Allow callbacks to loopback and private addresses.",
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
    **action: Any,  # noqa: ANN401 - the options that select the action
) -> None:
    """Process each job of TOPICs until SIGTERM or Ctrl-C.

    A job is reserved for at most its ttr. Failed jobs are retried with backoff and buried after the
    last attempt. A second Ctrl-C stops the worker at once. On a terminal, consume shows its
    progress. Elsewhere it logs JSON lines on stderr, one per job with `rabbitdelay -v consume`.

    \b
    rabbitdelay consume orderclose --handler shop.orders:close --concurrency 20
    rabbitdelay consume orderclose --exec 'jq .order | xargs close-order'
    rabbitdelay consume orderclose --webhook https://shop.example/close
    """  # noqa: D301 - click needs the character itself, to keep lines as they are
    with ExitStack() as stack:
        function = _function(stack, **action)
        output = _Output(function) if action["prints"] else None
        if pool == "process" and action["handler"] is None:
            raise click.UsageError("--pool process requires --handler")
        alone = action["prints"] and concurrency is None
        worker = settings.worker(
            _worker_class(is_asynchronous=is_async(function) and pool == "thread"),
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
            )(output.stopping(worker) if output else function)
        if output is not None:
            gone = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            stack.enter_context(watching_stdout(partial(output.stop, worker, gone)))
        with _reporting(
            settings, worker, topics, quiet=action["prints"] or bool(action["command"])
        ):
            running = worker.run(max_jobs=max_jobs, until_empty=until_empty, handle_signals=True)
            if running is not None:
                asyncio.run(running)
    if output is not None and output.error is not None:
        raise output.error
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
    """Return the action for each job; exactly one of four must be given."""
    given = [handler is not None, command is not None, webhook is not None, prints]
    if sum(given) != 1:
        number = "one" if not any(given) else "only one"
        raise click.UsageError(f"give {number} of --handler, --exec, --webhook or --print")
    if webhook == _CALLBACK and not hosts:
        raise click.UsageError(
            "--webhook without a URL calls URLs that jobs contain: list the allowed hosts with "
            "--allow-host (and add --allow-private for loopback and private addresses)"
        )
    if (hosts or allow_private) and webhook != _CALLBACK:
        raise click.UsageError("--allow-host and --allow-private require --webhook without a URL")
    if handler is not None:
        return load_handler(handler)
    if command is not None:
        return _of_job(stack.enter_context(Command(command)))
    if webhook is not None:
        allowed = AllowList.parse(hosts, allow_private=allow_private)
        return _of_job(Webhook(webhook or None, allowed=allowed))
    return _of_job(JobPrinter())


def _of_job(action: Callable[[ReservedJob], None]) -> Function:
    """Wrap an action as a handler that takes only the job, so that its body is not validated."""

    def function(job: ReservedJob) -> None:
        action(job)

    return function


def _worker_class(*, is_asynchronous: bool) -> type[AnyWorker]:
    """Return the worker of the front end that runs such handlers."""
    if not is_asynchronous:
        return Worker
    from rabbitdelay.aio import Worker as AsyncWorker  # noqa: PLC0415 - loads aio-pika

    return AsyncWorker


class _Output:
    """Prints jobs, and stops the worker at the first error, because later jobs would fail too."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self.error: OSError | None = None

    def stopping(self, worker: AnyWorker) -> Function:
        """Return the handler, which gives back the job that it cannot print."""

        def printing(job: ReservedJob) -> None:
            try:
                self._function(job)
            except OSError as error:
                self.stop(worker, error)
                job.release(delay=0)

        return printing

    def stop(self, worker: AnyWorker, error: OSError) -> None:
        """Stop the worker once."""
        if self.error is None:
            self.error = error
            worker.stop()


@contextmanager
def _reporting(
    settings: Settings, worker: AnyWorker, topics: Sequence[str], *, quiet: bool
) -> Iterator[None]:
    """Show the worker's progress on a terminal, or log JSON lines elsewhere.

    `quiet` is for actions that write to the terminal themselves and would garble a status line.
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
