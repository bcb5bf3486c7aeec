"""Measure the broker's cost of routing into a quorum queue, by exchange type.

Not part of `make bench`, because it explains a decision (docs/measurements.md, "Entering by a
fanout exchange"). The same loop sends the same messages into queues that differ only in their
exchange.
"""

import time
from functools import partial

import pika
from pika.exchange_type import ExchangeType

from benchmarks.bench_put import letters
from benchmarks.costs import in_turns
from benchmarks.measuring import TOPIC, Report, broker_version, is_quick, rounded_median
from benchmarks.pipelined import WINDOW, Letter, publish_all
from rabbitdelay.core.topology.setup import STABILISE_SECONDS
from rabbitdelay.private_broker import PrivateBroker

KEY = f"0.0.0.1.0.0.0.0.{TOPIC}"
BINDING_KEYS = {"fanout": "", "direct": KEY, "topic": "*.*.*.1.#"}


def set_up(url: str) -> None:
    """Declare a queue for each exchange type."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for name in ("default", *BINDING_KEYS):
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        for name, binding_key in BINDING_KEYS.items():
            channel.exchange_declare(name, ExchangeType(name), durable=True)
            channel.queue_bind(name, name, binding_key)
    time.sleep(STABILISE_SECONDS)


def run(rounds: int, count: int) -> Report:
    """Measure the exchange types alternately."""
    messages = [letter.message for letter in letters(count)]
    mail = {"default": [Letter("", "default", message) for message in messages]}
    mail |= {kind: [Letter(kind, KEY, message) for message in messages] for kind in BINDING_KEYS}
    with PrivateBroker.temporary() as broker:
        set_up(broker.url)
        for each in mail.values():
            publish_all(broker.url, each[:WINDOW])
        ways = {kind: partial(publish_all, broker.url, each) for kind, each in mail.items()}
        costs = in_turns(rounds, ways)
        version = broker_version(broker)
    rates = {
        kind: rounded_median([cost.per_second for cost in each]) for kind, each in costs.items()
    }
    return Report(
        name="routing",
        broker=version,
        figures={
            kind: {
                "per_second": round(rates[kind]),
                "lowest": round(min(cost.per_second for cost in each)),
                "highest": round(max(cost.per_second for cost in each)),
            }
            for kind, each in costs.items()
        },
        ratios={kind: round(rate / rates["default"], 2) for kind, rate in rates.items()},
        target="none: it explains a decision",
        ok=True,
        sentence="Confirmed/s by exchange type: "
        + ", ".join(f"{kind} {rate:,.0f}" for kind, rate in rates.items())
        + ".",
    )


if __name__ == "__main__":
    quick = is_quick(__doc__)
    run(2 if quick else 5, 5_000 if quick else 20_000).show()
