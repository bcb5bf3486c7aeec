"""Compare the benchmarks of two checkouts, which take turns in one run.

    .venv/bin/python benchmarks/compare.py OTHER_CHECKOUT [put consume ...] [--rounds 5] [--quick]

The other checkout needs its own environment: run `make lint` or `scripts/bootstrap` there. Two
ratios of this checkout to the other are printed for each figure: of the rate, as a multiple of the
baseline that the benchmark itself measures, and of the processor time per message, which other
work on the machine affects less.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measuring import QUICK_VARIABLE

HERE = Path(__file__).resolve().parent.parent
BENCHMARKS = ("put", "consume", "aio", "delete")

Figures = dict[tuple[str, str], list[float]]
"""Measured values of one checkout, by benchmark and name."""


def arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("other", type=Path, help="folder of the checkout to compare with")
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a trial run")
    return parser.parse_args()


def run(checkout: Path, benchmark: str, *, quick: bool) -> Mapping[str, Any]:
    """Run a benchmark in a checkout and return its report."""
    program = checkout / "benchmarks" / f"bench_{benchmark}.py"
    done = subprocess.run(
        [checkout / ".venv" / "bin" / "python", program],
        env=os.environ | {"PYTHONPATH": str(checkout)} | ({QUICK_VARIABLE: "1"} if quick else {}),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    report: Mapping[str, Any] = json.loads(done.stdout.splitlines()[0])
    return report


def values(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the figures of a report in which two checkouts can be compared."""
    for name, ratio in report["ratios"].items():
        yield f"{name}, rate to its baseline", ratio
    for name, figure in report["figures"].items():
        if isinstance(figure, Mapping) and "cpu_us_per_message" in figure:
            yield f"{name}, processor time", figure["cpu_us_per_message"]


def show(benchmark: str, ours: Figures, others: Figures) -> None:
    """Print the medians of one benchmark side by side."""
    for key in (key for key in ours if key[0] == benchmark and key in others):
        new, old = median(ours[key]), median(others[key])
        ratio = round(new / old, 3) if old else None
        line = {"benchmark": benchmark, "figure": key[1], "old": old, "new": new, "ratio": ratio}
        print(json.dumps(line), flush=True)


def main() -> None:
    """Run the benchmarks in turns, and print a line of JSON for each figure."""
    chosen = arguments()
    ours: Figures = defaultdict(list)
    others: Figures = defaultdict(list)
    for benchmark in chosen.benchmarks:
        for number in range(chosen.rounds):
            turns = [(HERE, ours), (chosen.other.resolve(), others)]
            for checkout, figures in turns if number % 2 else reversed(turns):
                print(f"{benchmark}, round {number + 1}: {checkout.name}", file=sys.stderr)
                for name, value in values(run(checkout, benchmark, quick=chosen.quick)):
                    figures[benchmark, name].append(value)
        show(benchmark, ours, others)


if __name__ == "__main__":
    main()
