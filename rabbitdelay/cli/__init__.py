"""The command line: a translation. Parse, call, print."""

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
from rabbitdelay.cli.commands.stats import stats
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
  0    done
  1    any other error; it says what to do
  2    wrong input, which was not acted on
  3    the answer is no: not running, no such topic, differences found
  4    no connection to the broker, or it refused the login
  5    not confirmed in time: a job may or may not have arrived, or be deleted
  130  interrupted
"""


def _version() -> str:
    try:
        return version("rabbitdelay")
    except PackageNotFoundError:
        return "(run from its source, not installed)"


@click.group(
    cls=SectionedGroup,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--url",
    envvar="RABBITDELAY_URL",
    help="The broker: amqp://user:password@host:port/vhost or amqps://…; several nodes with "
    "commas.  [env: RABBITDELAY_URL; default: the started private broker, or amqp://localhost]",
)
@click.option(
    "--namespace",
    envvar="RABBITDELAY_NAMESPACE",
    default="rabbitdelay",
    help="What all names on the broker begin with.  [env: RABBITDELAY_NAMESPACE]",
)
@click.option(
    "--queue-type",
    envvar="RABBITDELAY_QUEUE_TYPE",
    type=click.Choice(["quorum", "classic"]),
    default="quorum",
    help="What its queues are.  [env: RABBITDELAY_QUEUE_TYPE; default: quorum]",
)
@click.option(
    "--management-url",
    envvar="RABBITDELAY_MANAGEMENT_URL",
    help="The management API.  [env: RABBITDELAY_MANAGEMENT_URL; default: port 15672 of the "
    "broker's host]",
)
@click.option(
    "--settle-seconds",
    envvar="RABBITDELAY_SETTLE_SECONDS",
    type=click.FloatRange(min=0),
    help="Age in seconds at which a new queue counts as safe from a crash.  [env: "
    "RABBITDELAY_SETTLE_SECONDS; default: none, the queue is flushed to the broker's disk]",
)
@click.option(
    "--max-delay",
    envvar="RABBITDELAY_MAX_DELAY",
    type=read_duration,
    metavar="DURATION",
    help="The longest delay in this namespace, for which deletes are kept: 30d.  "
    "[env: RABBITDELAY_MAX_DELAY; default: 9 years]",
)
@click.option(
    "--connect-timeout",
    envvar="RABBITDELAY_CONNECT_TIMEOUT",
    type=read_duration,
    metavar="DURATION",
    default="0",
    help="How long put, consume, pop and deletes wait for a broker that is starting.  "
    "[env: RABBITDELAY_CONNECT_TIMEOUT; default: 0]",
)
@click.option(
    "--timeout",
    envvar="RABBITDELAY_TIMEOUT",
    type=read_duration,
    metavar="DURATION",
    default="30s",
    help="How long a command waits for the broker's answers; put --file for each job.  "
    "[env: RABBITDELAY_TIMEOUT; default: 30s]",
)
@click.option(
    "--declare/--no-declare",
    envvar="RABBITDELAY_DECLARE",
    default=True,
    help="Whether put, consume, reschedule, kick and retry make queues that are missing, as far as "
    "the user may.  [env: RABBITDELAY_DECLARE; default: --declare]",
)
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what the connection does.")
@click.version_option(_version(), prog_name="rabbitdelay", message="%(prog)s %(version)s")
@click.pass_context
def root(
    context: click.Context,
    *,
    url: str | None,
    namespace: str,
    queue_type: str,
    management_url: str | None,
    settle_seconds: float | None,
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
        settle_seconds,
        verbose,
        max_delay,
        connect_timeout,
        timeout,
        declare,
    )


root.add_section("Jobs", (put, consume, pop, delete, reschedule))
root.add_section("Topics", (topics, stats, pause, resume, purge))
root.add_section("What needs a look", (buried, unrouted, tombstones))
root.add_section("The broker and its queues", (demo, broker, doctor, namespaces, topology, explain))


def _warn_of_password(url: str) -> None:
    """Say that a password on the command line can be seen by every user of the machine."""
    with suppress(ValueError):
        passwords = {urlsplit(one).password for one in url.split(",")}
        if passwords - {None, "", "guest"}:
            click.echo(
                "warning: `ps` shows the password in --url to every user of this machine: "
                "set RABBITDELAY_URL instead",
                err=True,
            )


def main() -> None:
    """Run the command line."""
    _replace_what_cannot_be_encoded()
    root(prog_name="rabbitdelay")


def _replace_what_cannot_be_encoded() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a closed one is None
            stream.reconfigure(errors="replace")


def _log(context: click.Context, *, verbose: bool) -> None:
    """Let only our own log through, and only when asked: every error is told anyway."""
    logger = logging.getLogger("rabbitdelay")
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.NOTSET)
    context.call_on_close(lambda: logger.removeHandler(handler))
