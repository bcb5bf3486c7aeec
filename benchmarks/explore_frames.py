"""Measure the cost of encoding a job as AMQP frames, with pika and with core/amqp/encode.py.

Not part of `make bench`, because it explains a decision (docs/measurements.md, "Frames encoded by
hand"). pika's own Channel and Connection are measured, without a socket.
"""

import timeit
from typing import Any

import pika
from pika.channel import Channel
from pika.connection import Connection

from benchmarks.bench_put import letters
from benchmarks.measuring import Report, is_quick
from benchmarks.pipelined import properties_of
from rabbitdelay.core.amqp import encode

EXCHANGE, KEY = "rabbitdelay.v1.hold.1h", "0.0.0.1.0.0.0.0.bench"
FRAME_MAX = 131_072
REPEATS = 7


class Sink(pika.SelectConnection):
    """A connection that discards its output."""

    def __init__(self) -> None:
        super().__init__(internal_connection_workflow=False)
        self._body_max_length = FRAME_MAX - encode.FRAME_OVERHEAD_BYTES
        self.connection_state: Any = Connection.CONNECTION_OPEN

    def _adapter_emit_data(self, _data: bytes) -> None:
        """Discard the data."""


def best_microseconds(function: Any, number: int) -> float:  # noqa: ANN401 - any callable
    """Return the time of one call, the best of several runs because noise only adds time."""
    return round(min(timeit.repeat(function, number=number, repeat=REPEATS)) / number * 1e6, 1)


def run(number: int) -> Report:
    """Measure both encoders."""
    message = letters(1)[0].message
    channel = Channel(Sink(), 1, lambda _: None)
    channel._set_state(Channel.OPEN)  # noqa: SLF001 - no broker opens the channel

    def by_pika() -> None:
        channel.basic_publish(EXCHANGE, KEY, message.body, properties_of(message), mandatory=True)

    def by_hand() -> bytes:
        return encode.publish(1, EXCHANGE, KEY, message, FRAME_MAX)

    pika_us, hand_us = best_microseconds(by_pika, number), best_microseconds(by_hand, number)
    return Report(
        name="frames",
        broker="none",
        figures={"pika_us": pika_us, "by_hand_us": hand_us},
        ratios={"by_hand": round(hand_us / pika_us, 2)},
        target="none: it explains a decision",
        ok=True,
        sentence=f"Encoding a publish takes pika {pika_us} µs, core/amqp/encode.py {hand_us} µs.",
    )


if __name__ == "__main__":
    run(2_000 if is_quick(__doc__) else 20_000).show()
