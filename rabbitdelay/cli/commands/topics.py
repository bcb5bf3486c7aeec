"""`rabbitdelay topics`: how many jobs of each topic are where."""

from collections.abc import Sequence

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.options import json_option, read_topic
from rabbitdelay.cli.output import print_json, print_table, topics_table
from rabbitdelay.cli.pauses import read_pauses, topic_as_json
from rabbitdelay.core.topology.counts import Listing, TopicCounts, read_listing
from rabbitdelay.errors import ManagementUnreachable
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.overview import count_topic


@click.command(short_help="Count the jobs of each topic.")
@click.argument("names", metavar="[TOPIC]...", type=read_topic, nargs=-1)
@json_option
@pass_settings
def topics(settings: Settings, names: tuple[str, ...], *, as_json: bool) -> None:
    """List the topics: their jobs that are ready, reserved and buried, and which are paused.

    Without the management API only TOPICs that are named are counted, and how many of their jobs
    are reserved is not known. Exits with 3 when a named TOPIC is not there.
    """
    settings.require_namespace()
    listing = _listing(settings, names)
    counts = _count(settings, names or listing.topics, listing)
    pauses = read_pauses(settings)
    found = [pauses.mark(count) for count in counts.values() if count is not None]
    if as_json:
        print_json([topic_as_json(count, pauses.unknown) for count in found])
    else:
        _print(found, settings.namespace)
    pauses.tell()
    if missing := [topic for topic, count in counts.items() if count is None]:
        click.echo(f"no such topic: {', '.join(missing)}", err=True)
        answer_no()


def _listing(settings: Settings, names: Sequence[str]) -> Listing:
    topology = settings.topology
    try:
        return read_listing(topology, settings.management().queues(topology.prefix))
    except ManagementUnreachable as error:
        if names:
            return Listing()
        raise ManagementUnreachable(f"{error}; or name the topics") from None


def _count(
    settings: Settings, names: Sequence[str], listing: Listing
) -> dict[str, TopicCounts | None]:
    with settings.connection() as connection:
        administrator = Administrator(connection)
        return {
            name: count_topic(administrator, settings.topology, name, listing) for name in names
        }


def _print(counts: Sequence[TopicCounts], namespace: str) -> None:
    if not counts:
        click.echo(f"no topics in namespace {namespace}")
        return
    print_table(topics_table(counts))
