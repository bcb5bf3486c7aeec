"""The report of a run, as text and as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.checker import Verdict, Violation

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Run:
    """What was run."""

    rabbitmq: str
    nodes: int
    minutes: float
    seed: int
    skipped: dict[str, str]
    """Faults that were not possible here, with the reason."""
    unexpected_ends: dict[str, list[int]]
    """Exit codes of processes of the load that ended by themselves."""


def write(folder: Path, run: Run, verdict: Verdict) -> str:
    """Write report.json and report.txt, and return the text."""
    values = {"is_good": verdict.is_good, "run": asdict(run), "verdict": asdict(verdict)}
    (folder / "report.json").write_text(json.dumps(values, indent=2) + "\n")
    text = as_text(run, verdict)
    (folder / "report.txt").write_text(text)
    return text


def as_text(run: Run, verdict: Verdict) -> str:
    """Return the report for a person."""
    faults = ", ".join(f"{name} {count}" for name, count in sorted(verdict.faults.items()))
    lateness = ", ".join(f"{name} {value:.3f} s" for name, value in verdict.lateness.items())
    lines = [
        f"RabbitMQ {run.rabbitmq}, nodes {run.nodes}, minutes {run.minutes:g}, seed {run.seed}",
        f"puts        {verdict.puts} ({verdict.confirmed} confirmed, {verdict.unknown} unknown)",
        f"deletes     {verdict.deletes} ({verdict.delete_races} ran within the bound after it)",
        f"deliveries  {verdict.deliveries} ({verdict.retries} retries asked for)",
        f"faults      {sum(verdict.faults.values())}: {faults}",
        *(f"skipped     {name}: {reason}" for name, reason in run.skipped.items()),
        _violations("lost", verdict.lost),
        _violations("early", verdict.early),
        _violations("deleted run", verdict.deleted_runs),
        f"parked      {len(verdict.parked)} {' '.join(verdict.parked[:SHOWN])}".rstrip(),
        f"doubled     {verdict.doubled}",
        f"late        {verdict.late} by more than 1 s; {lateness}",
        *(f"ended       {name}: {codes}" for name, codes in run.unexpected_ends.items()),
        "every promise held" if verdict.is_good else "A PROMISE DID NOT HOLD",
    ]
    return "\n".join(lines) + "\n"


def _violations(name: str, found: list[Violation]) -> str:
    shown = " ".join(f"{one.job} ({one.seconds:.2f} s)" for one in found[:SHOWN])
    return f"{name:<11} {len(found)} {shown}".rstrip()
