"""The report of a run, as text and as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.checker import DELETE_BOUND_SECONDS, LATE_SECONDS, Lateness, Verdict, Violation

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


def write(folder: Path, run: Run, verdict: Verdict) -> str:
    """Write report.json, report.txt and row.md, and return the text."""
    values = {
        "is_good": is_good(run, verdict),
        "closing": closing(run, verdict),
        "run": asdict(run),
        "verdict": asdict(verdict),
    }
    (folder / "report.json").write_text(json.dumps(values, indent=2) + "\n")
    (folder / "row.md").write_text(as_row(run, verdict) + "\n")
    text = as_text(run, verdict)
    (folder / "report.txt").write_text(text)
    return text


def is_good(run: Run, verdict: Verdict) -> bool:
    """Whether the run was completed, and shows that every promise held."""
    return verdict.is_good and not run.unexpected_ends and not run.interruption


def as_text(run: Run, verdict: Verdict) -> str:
    """Return the report as text."""
    calls, bound = verdict.slowest_calls, f"{DELETE_BOUND_SECONDS:g} s"
    lines = [
        f"RabbitMQ {run.rabbitmq}, nodes {run.nodes}, minutes {run.minutes:g}, seed {run.seed}",
        f"puts         {verdict.puts} ({verdict.confirmed} confirmed, {verdict.unknown} unknown)",
        f"deletes      {verdict.deletes} ({verdict.deletes_failed} more failed)",
        f"in time      {verdict.deletes_in_time} deletes, {bound} or more before the due time",
        f"races        {verdict.delete_races} jobs ran less than {bound} after their delete",
        f"deliveries   {verdict.deliveries}",
        f"retries      {verdict.retries} asked for",
        f"timeouts     {verdict.timeouts} jobs delivered again after their ttr",
        f"faults       {sum(verdict.faults.values())}: {_faults(verdict)}",
        *(f"skipped      {name}: {reason}" for name, reason in run.skipped.items()),
        _violations("lost", verdict.lost),
        _violations("early", verdict.early),
        _violations("deleted run", verdict.deleted_runs),
        _violations("parked", verdict.parked),
        _violations("stalled", verdict.stalled),
        f"standstill   {verdict.standstill:.0f} s without a job begun that no fault explains",
        *(f"ended        {name}: {codes}" for name, codes in run.unexpected_ends.items()),
        f"doubled      {verdict.doubled}",
        f"slowest call put {calls['put']:.1f} s, delete {calls['delete']:.1f} s",
        "",
        *_lateness_table(verdict),
        "",
        closing(run, verdict),
    ]
    return "\n".join(lines) + "\n"


def as_row(run: Run, verdict: Verdict) -> str:
    """Return the row of this run for the table in docs/guarantees.md."""
    cells = (
        f"`MINUTES={run.minutes:g} SEED={run.seed} NODES={run.nodes}`",
        run.rabbitmq,
        f"{verdict.confirmed:,}",
        f"{verdict.deletes:,} ({verdict.deletes_in_time:,})",
        f"{sum(verdict.faults.values())}",
        *(str(len(found)) for found in (verdict.lost, verdict.early, verdict.deleted_runs)),
        str(len(verdict.parked)),
        f"{verdict.doubled:,}",
        f"{verdict.lateness.late:,}",
    )
    return f"| {' | '.join(cells)} |"


def closing(run: Run, verdict: Verdict) -> str:
    """Return the verdict in one line: PASS, FAIL or INCOMPLETE, and why."""
    found = _problems(run, verdict)
    if run.interruption:
        return f"INCOMPLETE: {'; '.join([run.interruption, *found])}"
    if found:
        return f"FAIL: {'; '.join(found)}"
    return f"PASS: every promise held for {verdict.confirmed} jobs"


def _problems(run: Run, verdict: Verdict) -> list[str]:
    counts = {
        "jobs to come" if run.interruption else "lost": len(verdict.lost),
        "early": len(verdict.early),
        "ran after their delete": len(verdict.deleted_runs),
        "parked": len(verdict.parked),
        "processes stalled": len(verdict.stalled),
        "processes ended by themselves": len(run.unexpected_ends),
    }
    found = [f"{count} {what}" for what, count in counts.items() if count]
    found += [f"all workers stood still for {verdict.standstill:.0f} s"] * verdict.is_standstill
    return found + [f"{name} had no effect" for name in verdict.without_effect]


def _faults(verdict: Verdict) -> str:
    return ", ".join(
        f"{name} {count}" + ("" if verdict.effects.get(name) else " (NO EFFECT)")
        for name, count in sorted(verdict.faults.items())
    )


def _violations(name: str, found: list[Violation]) -> str:
    shown = " ".join(f"{one.job}{_note(one)}" for one in found[:SHOWN])
    return f"{name:<12} {len(found)} {shown}".rstrip()


def _note(one: Violation) -> str:
    note = one.detail or (f"{one.seconds:.2f} s" if one.seconds else "")
    return f" ({note})" if note else ""


def _lateness_table(verdict: Verdict) -> list[str]:
    head = f"{'lateness after':<20} {'jobs':>6} {f'>{LATE_SECONDS:g} s':>6}"
    shares = (name.replace("p100", "max") for name in verdict.lateness.percentiles)
    names = "".join(f"{name:>9}" for name in shares)
    groups = [*verdict.lateness_by_fault.items(), ("all", verdict.lateness)]
    return [f"{head}{names}", *(_lateness_row(name, group) for name, group in groups)]


def _lateness_row(name: str, group: Lateness) -> str:
    values = "".join(f"{value:>7.3f} s" for value in group.percentiles.values())
    return f"{name:<20} {group.jobs:>6} {group.late:>6}{values}"
