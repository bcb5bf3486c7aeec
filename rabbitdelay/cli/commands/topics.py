"""`rabbitdelay topics`: list topics and count their jobs by state."""

from dataclasses import asdict

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.options import json_option, read_topic
from rabbitdelay.cli.output.console import print_json, print_table
from rabbitdelay.cli.output.tables import pauses_unknown, topics_table
from rabbitdelay.errors import ManagementUnreachable


@click.command(short_help="Count the jobs of each topic.")
@click.argument("names", metavar="[TOPIC]...", type=read_topic, nargs=-1)
@json_option
@pass_settings
def topics(settings: Settings, names: tuple[str, ...], *, as_json: bool) -> None:
    """List topics with their ready, reserved and buried jobs, and whether they are paused.

    Without the management API, only the TOPICs given are counted, and the number of their reserved
    jobs is unknown. Exits with 3 if a TOPIC does not exist.
    """
    with settings.client() as client:
        found = client.stats(*names, delayed=False)
    if found.management_error and not names:
        raise ManagementUnreachable(f"{found.management_error}; or name the topics")
    if as_json:
        print_json([asdict(count) for count in found.topics])
    elif found.topics:
        print_table(topics_table(found.topics))
    elif not names:
        click.echo(f"no topics in namespace {settings.namespace}")
    if found.deletes_error:
        click.echo(f"note: {pauses_unknown(found)}", err=True)
    if found.missing:
        click.echo(f"no such topic: {', '.join(found.missing)}", err=True)
        answer_no()
