"""`rabbitdelay namespaces`: list the namespaces of a broker and count their jobs."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.options import json_option
from rabbitdelay.cli.output.console import print_json, print_table
from rabbitdelay.cli.output.tables import table
from rabbitdelay.core.administration.namespaces import NamespaceCounts

_NUMBERS = ("topics", "delayed", "ready", "reserved", "buried", "unrouted", "consumers")


@click.command(short_help="List the namespaces and count their jobs.")
@json_option
@pass_settings
def namespaces(settings: Settings, *, as_json: bool) -> None:
    """List the namespaces of the vhost with the number of their topics and jobs.

    Requires the management API, whose counts are some seconds old.
    """
    with settings.administrator() as client:
        found = client.namespaces()
    if as_json:
        print_json([asdict(one) for one in found])
    elif found:
        _print(found)
    else:
        click.echo(f"no namespaces in vhost {settings.addresses[0].vhost}")


def _print(found: Sequence[NamespaceCounts]) -> None:
    rows = table("namespace", *_NUMBERS, numbers=_NUMBERS)
    for one in found:
        jobs = one.jobs
        counts = (jobs.delayed, jobs.ready, jobs.reserved, jobs.buried, jobs.unrouted)
        rows.add_row(one.namespace, *(f"{n:,}" for n in (one.topics, *counts, one.consumers)))
    print_table(rows)
