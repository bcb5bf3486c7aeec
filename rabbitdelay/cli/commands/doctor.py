"""`rabbitdelay doctor`: check a broker and suggest fixes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta

import click
from rich.console import Console
from rich.text import Text

from rabbitdelay import duration
from rabbitdelay.cli.context import Settings, note_missing_namespace, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.options import json_option, read_duration
from rabbitdelay.cli.output.console import output, print_json, print_table
from rabbitdelay.cli.output.tables import table
from rabbitdelay.cli.output.text import counted
from rabbitdelay.core.doctor.report import Check, Status
from rabbitdelay.engine.doctor.examination import OnStep
from rabbitdelay.models import DEFAULT_TTR_MS

_STYLES: dict[Status, str] = {
    "ok": "green",
    "warning": "yellow",
    "problem": "bold red",
    "unknown": "cyan",
}
_ORDER: tuple[Status, ...] = ("problem", "warning", "unknown", "ok")


@click.command(short_help="Check a broker and suggest fixes.")
@click.option(
    "--ttr",
    type=read_duration,
    metavar="DURATION",
    default=duration.describe(DEFAULT_TTR_MS),
    show_default=True,
    help="Longest ttr of your jobs, compared with consumer_timeout.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 on warnings and unknowns too.")
@click.option("--all", "everything", is_flag=True, help="Show the checks that are ok too.")
@json_option
@pass_settings
def doctor(
    settings: Settings, ttr: timedelta, *, strict: bool, everything: bool, as_json: bool
) -> None:
    """Check the broker and the namespace, and print the reason and the fix for each finding.

    Does not create anything or change jobs. A setting that neither AMQP nor the management API
    shows is `unknown`, never ok, unless the broker is a private one on this machine. Exits with 3
    if there is a problem.
    """
    with _steps() as on_step, settings.administrator() as client:
        checks = client.examine(longest_ttr=ttr, on_step=on_step)
        if any(check.name == "topology" and check.status != "ok" for check in checks):
            note_missing_namespace(client)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        _print(checks, everything=everything)
    failing = _ORDER[:3] if strict else _ORDER[:1]
    if any(check.status in failing for check in checks):
        answer_no()


@contextmanager
def _steps() -> Iterator[OnStep]:
    """Show the current step if stderr is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("connecting") as status:
        yield status.update


def _print(checks: Sequence[Check], *, everything: bool) -> None:
    ordered = sorted(checks, key=lambda check: _ORDER.index(check.status))
    rows = table("", "check", "finding")
    rows.columns[0].no_wrap = rows.columns[1].no_wrap = True
    for check in ordered:
        if everything or check.status != "ok":
            rows.add_row(Text(check.status, _STYLES[check.status]), check.name, _finding(check))
    if rows.row_count:
        print_table(rows)
        click.echo()
    counts = Counter(check.status for check in ordered)
    click.echo(", ".join(_number(status, counts[status]) for status in _ORDER if counts[status]))


def _number(status: Status, count: int) -> str:
    return counted(count, status) if status in ("problem", "warning") else f"{count} {status}"


def _finding(check: Check) -> Text:
    finding = Text(check.reason)
    if check.fix:
        finding.append(f"\n→ {check.fix}", "bold" if output().is_terminal else "")
    return finding
