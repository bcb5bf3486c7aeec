"""Count the hops of delays on our ladder and on a binary ladder of seconds."""

import random
from statistics import fmean

from benchmarks.binary_ladder import BinaryLadder
from benchmarks.measuring import Report, is_quick
from rabbitdelay.core.topology import ladder

ROUND_DELAYS_MS = {
    "60s": ladder.MINUTE_MS,
    "30m": 30 * ladder.MINUTE_MS,
    "1h": ladder.HOUR_MS,
    "1d": ladder.DAY_MS,
    "7d": 7 * ladder.DAY_MS,
    "30d": 30 * ladder.DAY_MS,
    "90m": 90 * ladder.MINUTE_MS,
}
WANTED = dict.fromkeys(ROUND_DELAYS_MS, 1) | {"90m": 2}
MOST_MEAN_HOPS = 4.0
LONGEST_MS = 7 * ladder.DAY_MS


def hops(delay_ms: int) -> int:
    """Return the number of hops on our ladder."""
    return len(ladder.hops(ladder.to_digits(delay_ms)))


def run(count: int) -> Report:
    """Count."""
    binary = BinaryLadder()
    chance = random.Random(1)
    delays_ms = [chance.randint(1, LONGEST_MS) for _ in range(count)]
    ours = {label: hops(delay_ms) for label, delay_ms in ROUND_DELAYS_MS.items()}
    theirs = {label: binary.hops(delay_ms) for label, delay_ms in ROUND_DELAYS_MS.items()}
    mean = round(fmean(map(hops, delays_ms)), 2)
    binary_mean = round(fmean(map(binary.hops, delays_ms)), 2)
    return Report(
        name="hops",
        broker="none",
        figures={
            "ours": {**ours, "random_7d": mean},
            "binary": {**theirs, "random_7d": binary_mean},
        },
        ratios={"random_7d": round(mean / binary_mean, 2)},
        target="60 s, 30 min, 1 h, 1 d, 7 d, 30 d: 1 hop; 90 min: 2; random up to 7 d: mean <= 4",
        ok=ours == WANTED and mean <= MOST_MEAN_HOPS,
        sentence=(
            f"30 minutes take {ours['30m']} hop (binary seconds: {theirs['30m']}), 7 days "
            f"{ours['7d']} ({theirs['7d']}), random delays up to 7 days {mean} on average "
            f"({binary_mean})."
        ),
    )


if __name__ == "__main__":
    run(10_000 if is_quick(__doc__) else 200_000).show()
