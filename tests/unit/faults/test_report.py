"""The report of a fault run: one closing line, and the same figures as text and as JSON."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import report
from tests.faults.checker import Judgement, check
from tests.faults.faults import plan
from tests.faults.history import Event, Kind

RUN = report.Run("4.3.0", nodes=3, minutes=5.0, seed=1, skipped={}, unexpected_ends={})
LOST = [Event(0.0, Kind.PUT, "a", delay=1.0), Event(0.1, Kind.CONFIRMED, "a")]
GOOD = [*LOST, Event(1.1, Kind.DELIVERED, "a", attempt=1), Event(1.2, Kind.FINISHED, "a")]


@pytest.mark.parametrize(
    ("run", "events", "line"),
    [
        (RUN, GOOD, "PASS: every promise held for 1 jobs"),
        (RUN, LOST, "FAIL: 1 lost"),
        (
            RUN,
            [*GOOD, Event(1.0, Kind.FAULT, detail="stop-app 2s")],
            "FAIL: stop-app had no effect",
        ),
        (
            replace(RUN, unexpected_ends={"worker-aio-0": [1]}),
            GOOD,
            "FAIL: 1 processes ended by themselves",
        ),
        (replace(RUN, interruption="interrupted"), LOST, "INCOMPLETE: interrupted; 1 jobs to come"),
    ],
)
def test_the_last_line_is_the_judgement(run: report.Run, events: list[Event], line: str) -> None:
    judgement = check(events)
    assert report.as_text(run, judgement).splitlines()[-1] == line
    assert report.is_good(run, judgement) == line.startswith("PASS")


def test_the_report_is_written_as_text_and_as_json(tmp_path: Path) -> None:
    judgement: Judgement = check(LOST)
    text = report.write(tmp_path, RUN, judgement)
    assert (tmp_path / "report.txt").read_text() == text
    row = "| `MINUTES=5 SEED=1 NODES=3` | 4.3.0 | 1 | 0 (0) | 0 | 1 | 0 | 0 | 0 | 0 | 0 |\n"
    assert (tmp_path / "row.md").read_text() == row
    values = json.loads((tmp_path / "report.json").read_text())
    assert (values["is_good"], values["closing"]) == (False, "FAIL: 1 lost")
    assert values["run"]["seed"] == 1
    assert values["judgement"]["lost"] == [{"job": "a", "seconds": 0.0, "detail": ""}]


def test_the_same_seed_plans_the_same_faults_and_each_kind_before_one_comes_again() -> None:
    names = ["kill-node", "stop-app", "memory-alarm"]
    first, second, other = (
        [step for step, _ in zip(plan(seed, names), range(6), strict=False)] for seed in (1, 1, 2)
    )
    assert first == second != other
    assert sorted(step.name for step in first[:3]) == sorted(names)
