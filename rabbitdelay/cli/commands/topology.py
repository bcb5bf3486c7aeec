"""`rabbitdelay topology`: show, create, export, verify or remove exchanges and queues."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from rabbitdelay import duration
from rabbitdelay.cli.context import Settings, note_missing_namespace, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.input.questions import agree
from rabbitdelay.cli.input.topology_options import TopologyOptions, takes_topology_options
from rabbitdelay.cli.options import json_option
from rabbitdelay.cli.output.console import print_json, print_table
from rabbitdelay.cli.output.progress import progress_bar
from rabbitdelay.cli.output.tables import table
from rabbitdelay.cli.output.text import counted
from rabbitdelay.core.administration.namespaces import Removal
from rabbitdelay.core.administration.verification import Finding
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Exchange, Queue
from rabbitdelay.core.topology.topology import Topology


@click.group(short_help="Show, create, export, verify or remove exchanges and queues.")
def topology() -> None:
    """Show, create, export, verify or remove the exchanges and queues of the namespace.

    Every namespace has its levels, `unrouted`, `settling` and the log of deletes. Hold queues and
    topics are created by the first put that needs them, or in advance with --all, --delay and
    --topic.
    """


# show


@topology.command()
@json_option
@pass_settings
def show(settings: Settings, *, as_json: bool) -> None:
    """Show the levels, exchanges and queues. Requires no broker."""
    if as_json:
        print_json(_show_json(settings.topology))
    else:
        _show_levels(settings.topology)
        _show_others(settings.topology)


def _show_levels(plan: Topology) -> None:
    rows = table("level", "unit", "hold queues", "", "exchange", numbers=("unit", ""))
    for level in ladder.LEVELS:
        first, last = level.hold_label(1), level.hold_label(level.highest_digit)
        holds = f"{plan.prefix}hold.{first} … {last}"
        exchange = plan.level_exchange(level.index)
        count = str(level.highest_digit)
        rows.add_row(level.name, duration.describe(level.unit_ms), holds, count, exchange)
    print_table(rows)


def _show_others(plan: Topology) -> None:
    rows = table("purpose", "exchange", "queue")
    rows.add_row("ready", plan.ready_exchange, plan.ready_queue("<topic>"))
    rows.add_row("buried", plan.buried_exchange, plan.buried_queue("<topic>"))
    rows.add_row("unrouted", plan.unrouted, plan.unrouted)
    rows.add_row("settling", plan.stabilising, plan.stabilising)
    rows.add_row("deletes", plan.tombstones, plan.tombstones)
    rows.add_row("snapshots", plan.snapshots, plan.snapshots)
    click.echo()
    print_table(rows)


def _show_json(plan: Topology) -> dict[str, Any]:
    declarations = plan.plan(ladder.EVERY_HOP)
    return {
        "namespace": plan.namespace,
        "queue_type": plan.queue_type,
        "levels": [
            {
                "name": level.name,
                "unit_ms": level.unit_ms,
                "highest_digit": level.highest_digit,
                "exchange": plan.level_exchange(level.index),
            }
            for level in ladder.LEVELS
        ],
        "exchanges": [item.name for item in declarations if isinstance(item, Exchange)],
        "queues": [item.name for item in declarations if isinstance(item, Queue)],
        "ready_queue": plan.ready_queue("<topic>"),
        "buried_queue": plan.buried_queue("<topic>"),
    }


# apply


@topology.command(short_help="Create missing exchanges and queues.")
@takes_topology_options
@json_option
@pass_settings
def apply(settings: Settings, *, selected: TopologyOptions, as_json: bool) -> None:
    """Create missing exchanges and queues, and return once they survive a crash."""
    if not settings.declare:
        raise click.UsageError(
            "topology apply declares queues: leave out --no-declare (RABBITDELAY_DECLARE)"
        )
    last = "waiting until new queues survive a crash"
    with settings.administrator() as client, progress_bar("creating", last) as on_progress:
        made = client.topology.apply(**selected.arguments(), on_progress=on_progress)
    if as_json:
        print_json({"namespace": settings.namespace, "queues": made.queues, "made": made.made})
    else:
        click.echo(
            f"namespace {settings.namespace} exists; hold queues: {made.hold_queues}, topics: "
            f"{made.topics}, new queues: {made.made} of {made.queues}"
        )


# export


@topology.command(short_help="Print RabbitMQ definitions to import.")
@takes_topology_options
@click.option("--vhost", help="Vhost to import into.  [default: the URL's]")
@pass_settings
def export(settings: Settings, *, selected: TopologyOptions, vhost: str | None) -> None:
    """Print exchanges and queues as RabbitMQ definitions, for a broker that clients may not change.

    Import them with `rabbitmqctl import_definitions` or in the management UI, and put with
    Client(declare=False).
    """
    with settings.administrator() as client:
        print_json(client.topology.export(**selected.arguments(), vhost=vhost))


# verify


@topology.command(short_help="Compare the broker with the expected topology.")
@takes_topology_options
@json_option
@pass_settings
def verify(settings: Settings, *, selected: TopologyOptions, as_json: bool) -> None:
    """Compare the exchanges and queues of the broker with the expected ones.

    With the management API, everything in the namespace is checked, including bindings and the
    policies that apply. Without it, only what every namespace has and what is selected is checked,
    without bindings and policies. Exits with 3 if there is a problem.
    """
    with settings.administrator() as client:
        found = client.topology.verify(**selected.arguments())
        if found.problems:
            note_missing_namespace(client)
    if found.unchecked:
        click.echo(f"note: bindings and policies were not checked: {found.unchecked}", err=True)
    if as_json:
        print_json([asdict(finding) for finding in found.findings])
    else:
        _print_findings(found.findings)
    if found.problems:
        answer_no()


def _print_findings(findings: Sequence[Finding]) -> None:
    rows = table("state", "kind", "name", "detail")
    for finding in findings:
        if finding.is_problem:
            state = Text(finding.state, "bold red")
            rows.add_row(state, finding.kind, finding.name, finding.detail)
    if rows.row_count:
        print_table(rows)
        click.echo()
    counts = Counter(finding.state for finding in findings)
    click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))


# remove


@topology.command(short_help="Remove the namespace.")
@click.option("--force", is_flag=True, help="Remove the namespace despite jobs and consumers.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be removed, or why it is refused.",
)
@json_option
@pass_settings
def remove(settings: Settings, *, force: bool, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Remove the namespace: its queues, its exchanges and its log of deletes.

    Refuses while there are jobs (delayed, ready, reserved, buried or unrouted) or connected
    consumers, unless --force is given. Requires the management API, whose counts of reserved jobs
    and consumers are some seconds old. First stop the programs that put jobs, because a put creates
    the namespace again. Exits with 3 if the namespace is in use or the answer is no.
    """
    with settings.administrator() as client:
        found = client.topology.remove(force=force or dry_run, dry_run=True)
    if not dry_run and not (yes or agree(_question(found), "remove")):
        click.echo("nothing was removed", err=True)
        answer_no()
    if not dry_run:
        found = _remove(settings.beginning_now(), force=force)
    if as_json:
        print_json(_removal_json(found, removed=not dry_run))
    elif dry_run:
        _print_objects(found)
    if dry_run and not force:
        found.check()
    if not as_json:
        click.echo(f"{'would remove' if dry_run else 'removed'} namespace {_described(found)}")


def _remove(settings: Settings, *, force: bool) -> Removal:
    removing = "removing"
    with settings.administrator() as client, progress_bar(removing, removing) as on_progress:
        return client.topology.remove(force=force, on_progress=on_progress)


def _question(plan: Removal) -> str:
    return f"Remove namespace {_described(plan)}, for good?"


def _described(plan: Removal) -> str:
    queues, exchanges = counted(len(plan.queues), "queue"), counted(len(plan.exchanges), "exchange")
    return f"{plan.namespace} ({queues}, {exchanges}; {plan.jobs})"


def _print_objects(plan: Removal) -> None:
    for queue in plan.queues:
        click.echo(f"queue {queue.name}")
    for exchange in plan.exchanges:
        click.echo(f"exchange {exchange.name}")


def _removal_json(plan: Removal, *, removed: bool) -> dict[str, Any]:
    return {
        "namespace": plan.namespace,
        "removed": removed,
        "queues": [queue.name for queue in plan.queues],
        "exchanges": [exchange.name for exchange in plan.exchanges],
        "jobs": asdict(plan.jobs),
        "consumers": plan.consumers,
    }
