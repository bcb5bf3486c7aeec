"""Measure what 300,000 pending jobs cost the putting process and the broker."""

import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from benchmarks.measuring import (
    BODY,
    TOPIC,
    Report,
    broker_memory_bytes,
    broker_version,
    disk_bytes,
    is_quick,
    resident_bytes,
)
from rabbitdelay import Client, JobSpec
from rabbitdelay.core.topology.setup import STABILISE_SECONDS
from rabbitdelay.models import Job
from rabbitdelay.private_broker import PrivateBroker

HOUR_SECONDS = 3_600
DELAYS_SECONDS = (*[HOUR_SECONDS] * 7, HOUR_SECONDS // 2, HOUR_SECONDS * 3 // 2, 24 * HOUR_SECONDS)
REST_SECONDS = 10.0
"""Seconds for the broker to become idle before its memory is read."""
TENTHS = 10
MOST_GROWTH_BYTES = 4 * 1024 * 1024
LEAST_RATE_RATIO = 0.85


class Progress:
    """Records the time and this process's memory when each tenth of the jobs is confirmed.

    An additional tenth is put first as a warm-up and not counted.
    """

    def __init__(self, count: int) -> None:
        self._tenth = count // TENTHS
        self._confirmed = 0
        self.times: list[float] = []
        self.resident_bytes: list[int] = []

    def confirmed(self, _job: Job) -> None:
        """Count a confirmed job; called on the I/O thread."""
        self._confirmed += 1
        if self._confirmed % self._tenth == 0:
            self.times.append(time.perf_counter())
            self.resident_bytes.append(resident_bytes())

    @property
    def rates(self) -> list[int]:
        """Return the jobs confirmed per second in each tenth."""
        pairs = zip(self.times, self.times[1:], strict=False)
        return [round(self._tenth / (end - begin)) for begin, end in pairs]


def specs(count: int) -> Iterator[JobSpec]:
    """Yield jobs that do not become due during the benchmark, most with a delay of an hour."""
    for delay in islice(cycle(DELAYS_SECONDS), count):
        yield JobSpec(TOPIC, BODY, delay=delay)


def broker_bytes(broker: PrivateBroker) -> dict[str, int]:
    """Return the bytes of memory and disk that the idle broker uses."""
    time.sleep(REST_SECONDS)
    node = broker.nodes[0]
    return {
        "memory": broker_memory_bytes(broker),
        "resident": resident_bytes(node.pid) if node.pid else 0,
        "disk": disk_bytes(broker.directory),
    }


def run(count: int) -> Report:
    """Put all jobs and measure before and after."""
    with PrivateBroker.temporary() as broker, Client(broker.url, stabilise_seconds=0) as client:
        client.put_many(specs(len(DELAYS_SECONDS)))
        time.sleep(STABILISE_SECONDS)
        before = broker_bytes(broker)
        progress = Progress(count)
        every = specs(count + count // TENTHS)
        confirmed = client.put_many(every, on_confirmed=progress.confirmed)
        after = broker_bytes(broker)
        per_job = {name: round((after[name] - before[name]) / confirmed) for name in after}
        return report(broker_version(broker), confirmed, progress, per_job)


def report(version: str, confirmed: int, progress: Progress, per_job: dict[str, int]) -> Report:
    """Compare the end of the run with its beginning."""
    rates, resident = progress.rates, progress.resident_bytes
    growth_bytes = max(resident) - resident[0]
    ratio = round(rates[-1] / rates[0], 2)
    figures: dict[str, Any] = {
        "pending": confirmed,
        "per_second": rates,
        "putter_resident_mib": [round(size / 1024**2, 1) for size in resident],
        "putter_growth_kib": growth_bytes // 1024,
        "broker_memory_bytes_per_job": per_job["memory"],
        "broker_resident_bytes_per_job": per_job["resident"],
        "broker_disk_bytes_per_job": per_job["disk"],
    }
    return Report(
        name="pending",
        broker=version,
        figures=figures,
        ratios={"last_tenth_to_first": ratio},
        target="putter's memory flat (growth <= 4 MiB); rate of the last tenth >= 0.85 x the first",
        ok=growth_bytes <= MOST_GROWTH_BYTES and ratio >= LEAST_RATE_RATIO,
        sentence=(
            f"{confirmed:,} pending jobs cost the putting process {growth_bytes / 1024**2:.1f} MiB "
            f"and the broker {per_job['memory']} bytes of memory and {per_job['disk']} bytes of "
            f"disk each; the last tenth was put at {ratio} times the rate of the first."
        ),
    )


if __name__ == "__main__":
    run(10_000 if is_quick(__doc__) else 300_000).show()
