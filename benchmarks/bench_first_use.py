"""Measure the first puts of a namespace, one after the other.

60 puts with random delays below 10 s in a new namespace need about 18 new hold queues. They are
measured with queues that are flushed, the default, and with a wait of 3 s for each new queue, which
unknown brokers need. Then a job with a delay of 30 minutes is put into a new topic.
"""

import random
import secrets
import time
from dataclasses import dataclass

from benchmarks.measuring import TOPIC, Report, broker_version, is_quick
from rabbitdelay import Client
from rabbitdelay.core.topology.setup import STABILISE_SECONDS
from rabbitdelay.private_broker import PrivateBroker

PUTS = 60
QUICK_PUTS = 6
LONGEST_SECONDS = 10.0
HALF_HOUR_SECONDS = 1800
MOST_SECONDS = 12.0
MOST_LATER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FirstUse:
    """Durations of the puts in a new namespace, in seconds."""

    total: float
    first: float
    slowest_later: float
    new_topic: float


def first_use(url: str, puts: int, stabilise_seconds: float | None) -> FirstUse:
    """Put jobs in a new namespace and time them."""
    draw, namespace = random.Random(1), f"first{secrets.token_hex(4)}"
    with Client(url, namespace=namespace, stabilise_seconds=stabilise_seconds) as client:
        delays = [draw.uniform(0, LONGEST_SECONDS) for _ in range(puts)]
        seconds = [_timed(client, TOPIC, delay) for delay in delays]
        new_topic = _timed(client, "another", HALF_HOUR_SECONDS)
    return FirstUse(sum(seconds), seconds[0], max(seconds[1:]), new_topic)


def _timed(client: Client, topic: str, delay: float) -> float:
    began = time.monotonic()
    client.put(topic, delay=delay)
    return time.monotonic() - began


def main() -> None:
    """Compare flushed queues with queues that are waited for."""
    puts = QUICK_PUTS if is_quick(__doc__) else PUTS
    with PrivateBroker.temporary() as broker:
        version = broker_version(broker)
        flushed = first_use(broker.url, puts, None)
        stabilised = first_use(broker.url, puts, STABILISE_SECONDS)
    report(version, puts, flushed, stabilised)


def report(version: str, puts: int, flushed: FirstUse, stabilised: FirstUse) -> None:
    """Print the figures."""
    later = max(flushed.slowest_later, flushed.new_topic)
    Report(
        "first_use",
        version,
        {
            "puts": puts,
            "seconds": round(flushed.total, 2),
            "first_seconds": round(flushed.first, 2),
            "slowest_later_seconds": round(flushed.slowest_later, 3),
            "new_topic_seconds": round(flushed.new_topic, 3),
            "stabilising_seconds": round(stabilised.total, 2),
        },
        {"stabilising_to_flushed": round(stabilised.total / flushed.total, 1)},
        f"{puts} puts in at most {MOST_SECONDS:.0f} s, none but the first above 1 s",
        flushed.total <= MOST_SECONDS and later <= MOST_LATER_SECONDS,
        f"first use ({version}): {puts} puts took {flushed.total:.1f} s, the first "
        f"{flushed.first:.1f} s and no other more than {flushed.slowest_later:.2f} s; a new topic "
        f"{flushed.new_topic:.2f} s. With queues that stabilise: {stabilised.total:.1f} s.",
    ).show()


if __name__ == "__main__":
    main()
