"""The report of a run, as text and as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.checker import DELETE_BOUND_SECONDS, LATE_SECONDS, Judgement, Lateness, Violation

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Run:
    """The parameters of a run, and how it ended."""

    rabbitmq: str
    nodes: int
    minutes: float
    seed: int
    skipped: dict[str, str]
    """Faults that are not possible on this machine, with the reason."""
    unexpected_ends: dict[str, list[int]]
    """Exit codes of processes of the load that ended unasked, or uncleanly when asked to."""
    interruption: str = ""
    """The reason why the run ended early; empty if it did not."""


def write(folder: Path, run: Run, judgement: Judgement) -> str:
    """Write report.json, report.txt and row.md, and return the text."""
    values = {
        "is_good": is_good(run, judgement),
        "closing": closing(run, judgement),
        "run": asdict(run),
        "judgement": asdict(judgement),
    }
    (folder / "report.json").write_text(json.dumps(values, indent=2) + "\n")
    (folder / "row.md").write_text(as_row(run, judgement) + "\n")
    text = as_text(run, judgement)
    (folder / "report.txt").write_text(text)
    return text


def is_good(run: Run, judgement: Judgement) -> bool:
    """Whether the run was completed, and shows that every promise held."""
    return judgement.is_good and not run.unexpected_ends and not run.interruption


def as_text(run: Run, judgement: Judgement) -> str:
    """Return the report as text."""
    calls, bound = judgement.slowest_calls, f"{DELETE_BOUND_SECONDS:g} s"
    lines = [
        f"RabbitMQ {run.rabbitmq}, nodes {run.nodes}, minutes {run.minutes:g}, seed {run.seed}",
        (
            f"puts         {judgement.puts} "
            f"({judgement.confirmed} confirmed, {judgement.unknown} unknown)"
        ),
        f"deletes      {judgement.deletes} ({judgement.deletes_failed} more failed)",
        f"in time      {judgement.deletes_in_time} deletes, {bound} or more before the due time",
        f"races        {judgement.delete_races} jobs ran less than {bound} after their delete",
        f"deliveries   {judgement.deliveries}",
        f"retries      {judgement.retries} asked for",
        f"timeouts     {judgement.timeouts} jobs delivered again after their ttr",
        f"faults       {sum(judgement.faults.values())}: {_faults(judgement)}",
        *(f"skipped      {name}: {reason}" for name, reason in run.skipped.items()),
        _violations("lost", judgement.lost),
        _violations("early", judgement.early),
        _violations("deleted run", judgement.deleted_runs),
        _violations("parked", judgement.parked),
        _violations("stalled", judgement.stalled),
        f"standstill   {judgement.standstill:.0f} s without a job begun that no fault explains",
        *(f"ended        {name}: {codes}" for name, codes in run.unexpected_ends.items()),
        f"doubled      {judgement.doubled}",
        f"slowest call put {calls['put']:.1f} s, delete {calls['delete']:.1f} s",
        "",
        *_lateness_table(judgement),
        "",
        closing(run, judgement),
    ]
    return "\n".join(lines) + "\n"


def as_row(run: Run, judgement: Judgement) -> str:
    """Return the row of this run for the table in docs/guarantees.md."""
    cells = (
        f"`MINUTES={run.minutes:g} SEED={run.seed} NODES={run.nodes}`",
        run.rabbitmq,
        f"{judgement.confirmed:,}",
        f"{judgement.deletes:,} ({judgement.deletes_in_time:,})",
        f"{sum(judgement.faults.values())}",
        *(str(len(found)) for found in (judgement.lost, judgement.early, judgement.deleted_runs)),
        str(len(judgement.parked)),
        f"{judgement.doubled:,}",
        f"{judgement.lateness.late:,}",
    )
    return f"| {' | '.join(cells)} |"


def closing(run: Run, judgement: Judgement) -> str:
    """Return the judgement in one line: PASS, FAIL or INCOMPLETE, and why."""
    found = _problems(run, judgement)
    if run.interruption:
        return f"INCOMPLETE: {'; '.join([run.interruption, *found])}"
    if found:
        return f"FAIL: {'; '.join(found)}"
    return f"PASS: every promise held for {judgement.confirmed} jobs"


def _problems(run: Run, judgement: Judgement) -> list[str]:
    counts = {
        "jobs to come" if run.interruption else "lost": len(judgement.lost),
        "early": len(judgement.early),
        "ran after their delete": len(judgement.deleted_runs),
        "parked": len(judgement.parked),
        "processes stalled": len(judgement.stalled),
        "processes ended by themselves": len(run.unexpected_ends),
    }
    found = [f"{count} {what}" for what, count in counts.items() if count]
    found += [f"all workers stood still for {judgement.standstill:.0f} s"] * judgement.is_standstill
    return found + [f"{name} had no effect" for name in judgement.without_effect]


def _faults(judgement: Judgement) -> str:
    return ", ".join(
        f"{name} {count}" + ("" if judgement.effects.get(name) else " (NO EFFECT)")
        for name, count in sorted(judgement.faults.items())
    )


def _violations(name: str, found: list[Violation]) -> str:
    shown = " ".join(f"{one.job}{_note(one)}" for one in found[:SHOWN])
    return f"{name:<12} {len(found)} {shown}".rstrip()


def _note(one: Violation) -> str:
    note = one.detail or (f"{one.seconds:.2f} s" if one.seconds else "")
    return f" ({note})" if note else ""


def _lateness_table(judgement: Judgement) -> list[str]:
    head = f"{'lateness after':<20} {'jobs':>6} {f'>{LATE_SECONDS:g} s':>6}"
    shares = (name.replace("p100", "max") for name in judgement.lateness.percentiles)
    names = "".join(f"{name:>9}" for name in shares)
    groups = [*judgement.lateness_by_fault.items(), ("all", judgement.lateness)]
    return [f"{head}{names}", *(_lateness_row(name, group) for name, group in groups)]


def _lateness_row(name: str, group: Lateness) -> str:
    values = "".join(f"{value:>7.3f} s" for value in group.percentiles.values())
    return f"{name:<20} {group.jobs:>6} {group.late:>6}{values}"
