"""`rabbitdelay topology`: the exchanges and queues of a namespace, shown, made and checked."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from rabbitdelay import duration
from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.options import json_option
from rabbitdelay.cli.output import agree, counted, print_json, print_table, steps, table
from rabbitdelay.cli.selection import Selection, selecting
from rabbitdelay.core.topology import ladder, namespaces, verification
from rabbitdelay.core.topology.definitions import definitions
from rabbitdelay.core.topology.namespaces import JobCounts, Removal
from rabbitdelay.core.topology.objects import Exchange, Queue
from rabbitdelay.core.topology.setup import Announce, Command, Declare, Remove, setup
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.topology.verification import Finding
from rabbitdelay.errors import ManagementUnreachable
from rabbitdelay.sync.administration import Administrator


@click.group(short_help="Show, make, export, verify and remove exchanges and queues.")
def topology() -> None:
    """Show, make, export, verify and remove the exchanges and queues of the namespace.

    Every namespace has its levels, `unrouted`, `settling` and the log of deletes. Hold queues and
    topics are made by the first put that needs them, or ahead of it with --all, --delay and
    --topic.
    """


# show


@topology.command()
@json_option
@pass_settings
def show(settings: Settings, *, as_json: bool) -> None:
    """Show the levels, the exchanges and the queues. No broker is needed."""
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
    rows = table("what", "exchange", "queue")
    rows.add_row("ready", plan.ready_exchange, plan.ready_queue("<topic>"))
    rows.add_row("buried", plan.buried_exchange, plan.buried_queue("<topic>"))
    rows.add_row("unrouted", plan.unrouted, plan.unrouted)
    rows.add_row("settling", plan.settling, plan.settling)
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


@topology.command()
@selecting
@json_option
@pass_settings
def apply(settings: Settings, *, selection: Selection, as_json: bool) -> None:
    """Make what is missing, and wait until it is safe to put through."""
    if not settings.declare:
        raise click.UsageError(
            "topology apply declares queues: leave out --no-declare (RABBITDELAY_DECLARE)"
        )
    plan = settings.topology
    parts = selection.parts(plan)
    made = _apply(settings, selection)
    if as_json:
        print_json({"namespace": plan.namespace, "queues": len(parts), "made": made})
    else:
        click.echo(
            f"namespace {plan.namespace} is there; hold queues: {len(selection.hops)}, topics: "
            f"{len(selection.topics)}, new queues: {made} of {len(parts)}"
        )


def _apply(settings: Settings, selection: Selection) -> int:
    """Return how many queues were new."""
    plan = settings.topology
    made = 0
    total = len(selection.declarations(plan))
    with settings.connection() as connection, steps("making", total) as advance:

        def done(command: Command) -> None:
            nonlocal made
            if isinstance(command, Announce):
                made += command.queues
            elif isinstance(command, Declare):
                advance(None)

        administrator = Administrator(connection, done, settle_seconds=settings.settle_seconds)
        conversation = setup(
            plan,
            selection.parts(plan),
            with_base=True,
            may_declare=True,
            flush=administrator.flush_name(),
        )
        if administrator.set_up(conversation):
            advance(f"new queues settle for {administrator.settle_seconds:g} s")
            administrator.settle()
    return made


# export


@topology.command()
@selecting
@click.option("--vhost", help="The vhost to import it into.  [default: that of the URL]")
@pass_settings
def export(settings: Settings, *, selection: Selection, vhost: str | None) -> None:
    """Print it as RabbitMQ definitions, for a broker that clients may not change.

    Import it with `rabbitmqctl import_definitions` or in the management UI, and put with
    Client(declare=False).
    """
    declarations = selection.declarations(settings.topology)
    print_json(definitions(declarations, vhost=vhost or settings.addresses[0].vhost))


# verify


@topology.command()
@selecting
@json_option
@pass_settings
def verify(settings: Settings, *, selection: Selection, as_json: bool) -> None:
    """Compare the broker with what should be there; exits with 3 when something is wrong.

    With the management API everything that exists in the namespace is checked, with its bindings
    and with the policies that apply to it. Without it, only what every namespace has and what is
    selected, and neither bindings nor policies.
    """
    try:
        findings = _compare(settings, selection)
    except ManagementUnreachable as error:
        click.echo(f"note: bindings and policies were not checked: {error}", err=True)
        findings = _ask(settings, selection)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print_findings(findings)
    if any(finding.is_problem for finding in findings):
        answer_no()


def _compare(settings: Settings, selection: Selection) -> list[Finding]:
    plan, vhost = settings.topology, settings.addresses[0].vhost
    found = settings.management().definitions(f"{plan.namespace}.")
    hops, topics = verification.existing(plan, (queue["name"] for queue in found["queues"]))
    everything = selection | Selection(tuple(hops), tuple(topics))
    return verification.compare(definitions(everything.declarations(plan), vhost=vhost), found)


def _ask(settings: Settings, selection: Selection) -> list[Finding]:
    with settings.connection() as connection:
        conversation = verification.ask(selection.declarations(settings.topology))
        return Administrator(connection).run(conversation)


def _print_findings(findings: Sequence[Finding]) -> None:
    rows = table("state", "what", "name", "detail")
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


@topology.command()
@click.option("--force", is_flag=True, help="Remove it with its jobs, and while it is consumed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@json_option
@pass_settings
def remove(settings: Settings, *, force: bool, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Remove the namespace: its queues, its exchanges and its log of deletes.

    It refuses while jobs are in it (delayed, ready, reserved, buried or unrouted) or consumers are
    connected to it, unless --force is given. The management API lists what there is; its counts of
    reserved jobs and consumers are some seconds old. Stop the programs that put first: a put makes
    the namespace anew. Exits with 3 when it is in use, or when the question is answered with no.
    """
    plan = _removal(settings)
    jobs = _count_jobs(settings, plan)
    if not force:
        plan.check(jobs)
    if not dry_run and not (yes or agree(_question(plan, jobs), "remove")):
        click.echo("nothing was removed", err=True)
        answer_no()
    if not dry_run:
        _remove(settings.beginning_now(), plan, force=force)
    if as_json:
        print_json(_removal_json(plan, jobs, removed=not dry_run))
    else:
        _print_removal(plan, jobs, dry_run=dry_run)


def _removal(settings: Settings) -> Removal:
    plan = settings.topology
    found = settings.management().definitions(f"{plan.namespace}.")
    removal = namespaces.removal(plan, found["queues"], found["exchanges"])
    if not removal.queues and not removal.exchanges:
        raise settings.namespace_missing()
    return removal


def _count_jobs(settings: Settings, plan: Removal) -> JobCounts:
    with settings.connection() as connection:
        return Administrator(connection).run(namespaces.count_jobs(settings.topology, plan))


def _remove(settings: Settings, plan: Removal, *, force: bool) -> None:
    total = len(plan.queues) + len(plan.exchanges)
    with settings.connection() as connection, steps("removing", total) as advance:

        def done(command: Command) -> None:
            if isinstance(command, Remove):
                advance(None)

        conversation = namespaces.remove(settings.topology, plan, with_jobs=force)
        Administrator(connection, done).run(conversation)


def _question(plan: Removal, jobs: JobCounts) -> str:
    return f"Remove namespace {_described(plan, jobs)}, for good?"


def _described(plan: Removal, jobs: JobCounts) -> str:
    queues, exchanges = counted(len(plan.queues), "queue"), counted(len(plan.exchanges), "exchange")
    return f"{plan.namespace} ({queues}, {exchanges}; {jobs})"


def _print_removal(plan: Removal, jobs: JobCounts, *, dry_run: bool) -> None:
    if not dry_run:
        click.echo(f"removed namespace {_described(plan, jobs)}")
        return
    for queue in plan.queues:
        click.echo(f"queue {queue.name}")
    for exchange in plan.exchanges:
        click.echo(f"exchange {exchange.name}")
    click.echo(f"would remove namespace {_described(plan, jobs)}")


def _removal_json(plan: Removal, jobs: JobCounts, *, removed: bool) -> dict[str, Any]:
    return {
        "namespace": plan.namespace,
        "removed": removed,
        "queues": [queue.name for queue in plan.queues],
        "exchanges": [exchange.name for exchange in plan.exchanges],
        "jobs": asdict(jobs),
        "consumers": plan.consumers,
    }
