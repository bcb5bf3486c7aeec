"""Measure how late a handler starts, end to end from put to Worker, at 1000 jobs/s.

The load of bench_lateness.py goes once to a Worker whose handler records the time, and once to a
bare pika consumer. The difference is the cost of the consumer layer.
"""

import random
import time

from benchmarks.bench_lateness import (
    GRAIN_MS,
    JOBS_PER_SECOND,
    LONGEST_MS,
    SHORTEST_MS,
    Load,
    OurLadder,
    Outcome,
    measure,
)
from benchmarks.measuring import Report, broker_version, is_quick
from rabbitdelay import Client
from rabbitdelay.core.topology.setup import STABILISE_SECONDS
from rabbitdelay.private_broker import PrivateBroker

AIM_P99_MS = 150.0


def run(seconds: float, longest_ms: int) -> Report:
    """Run both measurements, one after the other, on one broker."""
    chance = random.Random(1)
    grains = range(SHORTEST_MS // GRAIN_MS, longest_ms // GRAIN_MS + 1)
    load = Load([chance.choice(grains) * GRAIN_MS for _ in range(int(seconds * JOBS_PER_SECOND))])
    with PrivateBroker.temporary() as broker, Client(broker.url, stabilise_seconds=0) as client:
        ours = OurLadder(client)
        ours.set_up()
        time.sleep(STABILISE_SECONDS)
        bare = measure(broker, ours, load)
        worker = measure(broker, ours, load, by_worker=True)
        return report(broker_version(broker), bare, worker)


def report(version: str, bare: Outcome, worker: Outcome) -> Report:
    """Compare."""
    figures = {"bare_consumer": bare.figures(), "worker": worker.figures()}
    late, baseline = figures["worker"], figures["bare_consumer"]
    ratios = {
        f"p{percent}": round(late[f"p{percent}_ms"] / baseline[f"p{percent}_ms"], 2)
        for percent in (50, 99)
    }
    exact = not late["early"] and not late["lost"] and not late["doubled"]
    return Report(
        name="end_to_end",
        broker=version,
        figures=figures,
        ratios=ratios,
        target="nothing early, lost or doubled; aim p99 <= 150 ms",
        ok=exact and late["p99_ms"] <= AIM_P99_MS,
        sentence=(
            f"At {JOBS_PER_SECOND} jobs/s a worker's handler begins {late['p50_ms']} ms late (p50) "
            f"and {late['p99_ms']} ms (p99); a bare consumer gets its message {baseline['p50_ms']} "
            f"and {baseline['p99_ms']} ms late."
        ),
    )


if __name__ == "__main__":
    quick = is_quick(__doc__)
    run(3 if quick else 30, 5_000 if quick else LONGEST_MS).show()
