"""Measure lateness (received - due) on our ladder and on a binary one, under the same load.

The load is 1000 jobs/s for 30 s, with random delays of 1 to 30 s in steps of 10 ms. Both ladders
receive the same delays at the same times, in the same persistent messages, through quorum queues
with at-least-once dead-lettering. The same bare consumer in a separate process receives the jobs.
Our jobs are put by a Client, the peer's by a bare pika loop, which does less work.

A ladder of seconds must round a delay of 1.23 s up to 2 s, or the job would be early. So its
lateness is reported twice: as seen by its user, and without that rounding, which leaves the cost of
the hops. `--fine` adds a binary ladder with steps of 10 ms, which can represent these delays.
"""

import random
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from statistics import fmean

import pika

from benchmarks.binary_ladder import BinaryLadder
from benchmarks.measuring import (
    BODY,
    TOPIC,
    ProcessorWatch,
    Report,
    broker_version,
    is_quick,
    percentile,
)
from benchmarks.pipelined import Letter, PacedLoop
from benchmarks.receiver import GRACE_SECONDS, WARM_UP_PREFIX, Arrival, receiving
from rabbitdelay import Client, JobSpec
from rabbitdelay.core.jobs import envelope, validation
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.setup import STABILISE_SECONDS
from rabbitdelay.private_broker import PrivateBroker

GRAIN_MS = 10
SHORTEST_MS, LONGEST_MS = 1_000, 30_000
JOBS_PER_SECOND = 1_000
MOST_LATE_SECONDS = 30.0
MOST_RATIO = 1 / 3
AIM_P99_MS = 100.0
WARM_UP_JOBS = 2_000


@dataclass(frozen=True, slots=True)
class Load:
    """The delay of each job; a job is put every 1 / `per_second` s."""

    delays_ms: Sequence[int]
    id_prefix: str = "job-"
    per_second: int = JOBS_PER_SECOND

    def id(self, place: int) -> str:
        """Return the id of the job at a position."""
        return f"{self.id_prefix}{place}"

    def place(self, id: str) -> int:
        """Return the position of a job."""
        return int(id.removeprefix(self.id_prefix))

    @property
    def seconds(self) -> float:
        """Seconds from the first put until the last job is due."""
        return len(self.delays_ms) / self.per_second + max(self.delays_ms) / 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a load on one ladder."""

    lateness_ms: list[float]
    rounding_ms: list[int]
    hops: float
    lost: int
    doubled: int
    broker_cpu_us: float
    """The broker's total processor time per job, in microseconds."""
    busy_elsewhere: float
    """Share of the machine's processors that other processes used."""

    @property
    def early(self) -> int:
        """Number of jobs received before they were due."""
        return sum(late < 0 for late in self.lateness_ms)

    @property
    def hops_alone_ms(self) -> list[float]:
        """Lateness in milliseconds without the rounding of the ladder."""
        pairs = zip(self.lateness_ms, self.rounding_ms, strict=True)
        return [late - rounding for late, rounding in pairs]

    def figures(self) -> dict[str, float]:
        """Return the results as figures of a report."""
        figures: dict[str, float] = {"received": len(self.lateness_ms), "hops": self.hops}
        figures |= {"early": self.early, "lost": self.lost, "doubled": self.doubled}
        figures |= {"broker_cpu_us_per_job": self.broker_cpu_us}
        figures |= {"busy_elsewhere": self.busy_elsewhere}
        for percent in (50, 99, 100):
            figures[f"p{percent}_ms"] = round(percentile(self.lateness_ms, percent), 1)
        if any(self.rounding_ms):
            for percent in (50, 99, 100):
                late = percentile(self.hops_alone_ms, percent)
                figures[f"hops_alone_p{percent}_ms"] = round(late, 1)
        return figures


class OurLadder:
    """Our ladder, with jobs put by a Client."""

    name = "ours"

    def __init__(self, client: Client) -> None:
        self._client = client
        self.ready_queue = client.topology.ready_queue(TOPIC)

    def set_up(self) -> None:
        """Declare every hold queue that a load can need."""
        delays_ms = [1_000 * digit + 110 * (digit % 10) for digit in range(1, 31)]
        self._client.put_many(
            JobSpec(
                TOPIC,
                BODY,
                delay=timedelta(milliseconds=delay_ms),
                id=f"{WARM_UP_PREFIX}{delay_ms}",
            )
            for delay_ms in delays_ms
        )

    def put(self, load: Load) -> None:
        """Put a load, each job at its time."""
        began = time.perf_counter()
        futures = []
        for place, delay_ms in enumerate(load.delays_ms):
            time.sleep(max(0.0, began + place / load.per_second - time.perf_counter()))
            delay = timedelta(milliseconds=delay_ms)
            futures.append(self._client.put_nowait(TOPIC, BODY, delay=delay, id=load.id(place)))
        for future in futures:
            future.result()

    @staticmethod
    def rounding_ms(delay_ms: int) -> int:
        """Return the milliseconds that rounding adds to a delay."""
        return ladder.round_up(delay_ms) - delay_ms

    @staticmethod
    def hops(delay_ms: int) -> int:
        """Return the number of hops of a delay."""
        return len(ladder.hops(ladder.to_digits(delay_ms)))


class PeerLadder:
    """A binary ladder, with the same jobs put by a bare pika loop."""

    def __init__(self, name: str, url: str, unit_ms: int) -> None:
        self.name = name
        self._url = url
        self._ladder = BinaryLadder(name, unit_ms)
        self.ready_queue = self._ladder.ready_queue(TOPIC)
        self.rounding_ms, self.hops = self._ladder.rounding_ms, self._ladder.hops

    def set_up(self) -> None:
        """Declare all levels."""
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            self._ladder.declare(connection.channel(), TOPIC)

    def put(self, load: Load) -> None:
        """Put a load, each job at its time."""
        began, place = time.perf_counter(), 0

        def next_letter() -> Letter | None:
            nonlocal place
            if time.perf_counter() < began + place / load.per_second:
                return None
            place += 1
            return self._letter(load.delays_ms[place - 1], load.id(place - 1))

        PacedLoop(self._url, next_letter, len(load.delays_ms)).run()

    def _letter(self, delay_ms: int, id: str) -> Letter:
        job = validation.make_job(
            JobSpec(TOPIC, BODY, delay=timedelta(milliseconds=delay_ms), id=id),
            now_ms=time.time_ns() // 1_000_000,
            random_hex=secrets.token_hex(validation.RANDOM_HEX_DIGITS // 2),
            bounds=validation.Bounds(),
        )
        key = self._ladder.routing_key(delay_ms, TOPIC)
        return Letter(self._ladder.entrance(delay_ms), key, envelope.encode(job))


AnyLadder = OurLadder | PeerLadder


def measure(
    broker: PrivateBroker, ladder_: AnyLadder, load: Load, *, by_worker: bool = False
) -> Outcome:
    """Put and receive a load, after a smaller one that warms up the queues."""
    grains = (GRAIN_MS * (place % 100) for place in range(WARM_UP_JOBS))
    warm_up = Load([SHORTEST_MS + grain_ms for grain_ms in grains], WARM_UP_PREFIX)
    most_seconds = warm_up.seconds + load.seconds + MOST_LATE_SECONDS + GRACE_SECONDS
    count = len(load.delays_ms)
    queue = ladder_.ready_queue
    with receiving(broker.url, queue, count, most_seconds, by_worker=by_worker) as receiver:
        ladder_.put(warm_up)
        time.sleep(2 * SHORTEST_MS / 1000 + GRACE_SECONDS)
        watch = ProcessorWatch(broker)
        ladder_.put(load)
        return outcome(ladder_, load, receiver.arrivals(), watch)


def outcome(
    ladder_: AnyLadder, load: Load, arrivals: Sequence[Arrival], watch: ProcessorWatch
) -> Outcome:
    """Compare the arrivals with the jobs that were put."""
    distinct = {arrival.id for arrival in arrivals}
    return Outcome(
        [arrival.lateness_ms for arrival in arrivals],
        [ladder_.rounding_ms(load.delays_ms[load.place(arrival.id)]) for arrival in arrivals],
        round(fmean(map(ladder_.hops, load.delays_ms)), 2),
        len(load.delays_ms) - len(distinct),
        len(arrivals) - len(distinct),
        watch.broker_microseconds(len(load.delays_ms)),
        watch.busy_elsewhere(),
    )


def run(seconds: float, longest_ms: int, *, fine: bool) -> Report:
    """Measure the ladders one after another, on a broker that has all of them from the start."""
    chance = random.Random(1)
    grains = range(SHORTEST_MS // GRAIN_MS, longest_ms // GRAIN_MS + 1)
    load = Load([chance.choice(grains) * GRAIN_MS for _ in range(int(seconds * JOBS_PER_SECOND))])
    with ExitStack() as stack:
        broker = stack.enter_context(PrivateBroker.temporary())
        client = stack.enter_context(Client(broker.url, stabilise_seconds=0))
        ladders: list[AnyLadder] = [OurLadder(client), PeerLadder("binary", broker.url, 1_000)]
        if fine:
            ladders.append(PeerLadder("binary_10ms", broker.url, GRAIN_MS))
        for each in ladders:
            each.set_up()
        time.sleep(STABILISE_SECONDS)
        outcomes = {each.name: measure(broker, each, load) for each in ladders}
        return report(broker_version(broker), outcomes)


def report(version: str, outcomes: dict[str, Outcome]) -> Report:
    """Compare."""
    figures = {name: outcome.figures() for name, outcome in outcomes.items()}
    ours, peer = figures["ours"], figures["binary"]
    ratios = {
        f"{name}_{key}": round(ours[f"p{percent}_ms"] / them[key], 3)
        for name, them in figures.items()
        if name != "ours"
        for percent in (50, 99)
        for key in (f"p{percent}_ms", f"hops_alone_p{percent}_ms")
        if key in them
    }
    exact = not ours["early"] and not ours["lost"] and not ours["doubled"]
    on_time = max(ratios["binary_p50_ms"], ratios["binary_p99_ms"]) <= MOST_RATIO
    return Report(
        name="lateness",
        broker=version,
        figures=figures | {"aim_met": ours["p99_ms"] <= AIM_P99_MS},
        ratios=ratios,
        target="nothing early, lost or doubled; p50 and p99 <= 1/3 of binary's; aim p99 <= 100 ms",
        ok=exact and on_time,
        sentence=(
            f"At {JOBS_PER_SECOND} jobs/s jobs are {ours['p50_ms']} ms late (p50) and "
            f"{ours['p99_ms']} ms (p99); on a binary ladder of seconds {peer['p50_ms']} and "
            f"{peer['p99_ms']} ms, of which the hops alone make {peer['hops_alone_p50_ms']} and "
            f"{peer['hops_alone_p99_ms']} ms."
        ),
    )


if __name__ == "__main__":
    fine = "--fine" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--fine"]
    quick = is_quick(__doc__)
    run(3 if quick else 30, 5_000 if quick else LONGEST_MS, fine=fine).show()
