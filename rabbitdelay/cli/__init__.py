"""The command line: parse arguments, call the client, print the result."""

import io
import logging
import sys
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import cast
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from rabbitdelay.cli.commands.broker import broker
from rabbitdelay.cli.commands.buried import buried
from rabbitdelay.cli.commands.consume import consume
from rabbitdelay.cli.commands.delete import delete
from rabbitdelay.cli.commands.demo import demo
from rabbitdelay.cli.commands.doctor import doctor
from rabbitdelay.cli.commands.explain import explain
from rabbitdelay.cli.commands.namespaces import namespaces
from rabbitdelay.cli.commands.pause import pause, resume
from rabbitdelay.cli.commands.pop import pop
from rabbitdelay.cli.commands.purge import purge
from rabbitdelay.cli.commands.put import put
from rabbitdelay.cli.commands.reschedule import reschedule
from rabbitdelay.cli.commands.serve import serve
from rabbitdelay.cli.commands.stats import stats
from rabbitdelay.cli.commands.token import token
from rabbitdelay.cli.commands.tombstones import tombstones
from rabbitdelay.cli.commands.topics import topics
from rabbitdelay.cli.commands.topology import topology
from rabbitdelay.cli.commands.unrouted import unrouted
from rabbitdelay.cli.context import Settings
from rabbitdelay.cli.options import read_duration
from rabbitdelay.cli.sections import SectionedGroup
from rabbitdelay.core.topology.topology import QueueType

_EXIT_CODES = """\b
Exit codes:
  0    success
  1    any other error; the message says what to do
  2    invalid input, which was not processed
  3    negative result: not running, no such topic, differences found
  4    no connection to the broker, or login refused
  5    not confirmed in time: a job may or may not have been put or deleted
  130  interrupted
  141  the reader of the output closed its pipe, as in `| head -1`
"""


def _version() -> str:
    try:
        return version("rabbitdelay")
    except PackageNotFoundError:
        return "(not installed, running from source)"


@click.group(
    cls=SectionedGroup,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--url",
    envvar="RABBITDELAY_URL",
    help="Broker URL: amqp://user:password@host:port/vhost or amqps://…; commas separate several "
    "nodes.  [env: RABBITDELAY_URL; default: the running private broker, or amqp://localhost]",
)
@click.option(
    "--namespace",
    envvar="RABBITDELAY_NAMESPACE",
    default="rabbitdelay",
    help="Prefix of every exchange and queue name.  [env: RABBITDELAY_NAMESPACE; default: "
    "rabbitdelay]",
)
@click.option(
    "--queue-type",
    envvar="RABBITDELAY_QUEUE_TYPE",
    type=click.Choice(["quorum", "classic"]),
    default="quorum",
    help="Type of the namespace's queues.  [env: RABBITDELAY_QUEUE_TYPE; default: quorum]",
)
@click.option(
    "--management-url",
    envvar="RABBITDELAY_MANAGEMENT_URL",
    help="URL of the management API.  [env: RABBITDELAY_MANAGEMENT_URL; default: port 15672 on "
    "the broker's host]",
)
@click.option(
    "--stabilise-seconds",
    envvar="RABBITDELAY_STABILISE_SECONDS",
    type=click.FloatRange(min=0),
    help="Age in seconds at which a new queue counts as crash-safe.  [env: "
    "RABBITDELAY_STABILISE_SECONDS; default: none, the queue is flushed to the broker's disk]",
)
@click.option(
    "--max-delay",
    envvar="RABBITDELAY_MAX_DELAY",
    type=read_duration,
    metavar="DURATION",
    help="Longest delay in this namespace, such as 30d, for which deletes are kept.  "
    "[env: RABBITDELAY_MAX_DELAY; default: 9 years]",
)
@click.option(
    "--connect-timeout",
    envvar="RABBITDELAY_CONNECT_TIMEOUT",
    type=read_duration,
    metavar="DURATION",
    default="0",
    help="Time that put, consume, pop and deletes wait for a broker that is starting.  "
    "[env: RABBITDELAY_CONNECT_TIMEOUT; default: 0]",
)
@click.option(
    "--timeout",
    envvar="RABBITDELAY_TIMEOUT",
    type=read_duration,
    metavar="DURATION",
    default="30s",
    help="Time that a command waits for the broker's responses; per job for put --file.  "
    "[env: RABBITDELAY_TIMEOUT; default: 30s]",
)
@click.option(
    "--declare/--no-declare",
    envvar="RABBITDELAY_DECLARE",
    default=True,
    help="Whether put, consume, reschedule, kick and retry declare missing queues, if the user has "
    "the permission.  [env: RABBITDELAY_DECLARE; default: --declare]",
)
@click.option("-v", "--verbose", is_flag=True, help="Log connection events on stderr.")
@click.version_option(_version(), prog_name="rabbitdelay", message="%(prog)s %(version)s")
@click.pass_context
def root(
    context: click.Context,
    *,
    url: str | None,
    namespace: str,
    queue_type: str,
    management_url: str | None,
    stabilise_seconds: float | None,
    max_delay: timedelta | None,
    connect_timeout: timedelta,
    timeout: timedelta,
    declare: bool,
    verbose: bool,
) -> None:
    """Delayed jobs on plain RabbitMQ: no plugin, no scheduler process, no second database."""
    _log(context, verbose=verbose)
    if url is not None and context.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        _warn_of_password(url)
    context.obj = Settings(
        url,
        namespace,
        cast("QueueType", queue_type),
        management_url,
        stabilise_seconds,
        verbose,
        max_delay,
        connect_timeout,
        timeout,
        declare,
    )


root.add_section("Jobs", (put, consume, pop, delete, reschedule))
root.add_section("Topics", (topics, stats, pause, resume, purge))
root.add_section("Jobs that need attention", (buried, unrouted, tombstones))
root.add_section(
    "Broker and queues", (demo, serve, token, broker, doctor, namespaces, topology, explain)
)


def _warn_of_password(url: str) -> None:
    """Warn that every user of the machine can see a password on the command line."""
    with suppress(ValueError):
        passwords = {urlsplit(one).password for one in url.split(",")}
        if passwords - {None, "", "guest"}:
            click.echo(
                "warning: every user of this machine can see the password in --url with `ps`: "
                "set RABBITDELAY_URL instead",
                err=True,
            )


def main() -> None:
    """Run the command line."""
    _replace_unencodable_characters()
    root(prog_name="rabbitdelay")


def _replace_unencodable_characters() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a closed stream is None
            stream.reconfigure(errors="replace")


def _log(context: click.Context, *, verbose: bool) -> None:
    """Show rabbitdelay's own log, only with --verbose, because errors are printed anyway."""
    logger = logging.getLogger("rabbitdelay")
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.NOTSET)
    context.call_on_close(lambda: logger.removeHandler(handler))
