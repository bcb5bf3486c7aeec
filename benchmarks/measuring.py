"""Support for benchmarks: sizes, percentiles, resources of processes, and reports."""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rabbitdelay import ManagementUnreachable
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.node.readiness import management

QUICK_VARIABLE = "RABBITDELAY_BENCH_QUICK"
BODY_BYTES = 256
BODY = b"x" * BODY_BYTES
TOPIC = "bench"

_BLOCK_BYTES = 512  # the unit of st_blocks on every file system


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a benchmark: a line of JSON and a sentence."""

    name: str
    broker: str
    figures: Mapping[str, Any]
    ratios: Mapping[str, float]
    target: str
    ok: bool
    sentence: str

    def show(self) -> None:
        """Print both. A missed target is a result, not a failure of the benchmark."""
        line = asdict(self)
        sentence = line.pop("sentence")
        print(json.dumps(line))
        print(sentence, flush=True)


def is_quick(description: str | None) -> bool:
    """Whether to run with small sizes, as a trial and not for figures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes for a trial run")
    chosen: bool = parser.parse_args().quick
    return chosen or bool(os.environ.get(QUICK_VARIABLE))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` percent of the values do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def rounded_median(values: Sequence[float]) -> float:
    """Return the median, rounded to one decimal."""
    return round(median(values), 1)


def broker_version(broker: PrivateBroker) -> str:
    """Return the version of the running RabbitMQ."""
    try:
        overview = management(broker.nodes[0].layout.management_port).get("overview")
    except ManagementUnreachable:
        return "unknown"
    return str(overview["rabbitmq_version"])


def broker_memory_bytes(broker: PrivateBroker) -> int:
    """Return the memory that the broker reports, as shown in the management UI."""
    port = broker.nodes[0].layout.management_port
    try:
        nodes = management(port).get("nodes?columns=mem_used")
    except ManagementUnreachable:
        return 0
    return int(nodes[0]["mem_used"])


def disk_bytes(directory: Path) -> int:
    """Return the disk space that the files of a folder occupy."""
    return sum(path.stat().st_blocks for path in directory.rglob("*") if path.is_file()) * (
        _BLOCK_BYTES
    )


class ProcessorWatch:
    """Measures the processor time of the broker and of processes outside this benchmark.

    Lateness measured on a busy machine reflects the other processes more than the ladder.
    """

    def __init__(self, broker: PrivateBroker) -> None:
        self._broker_id = broker.nodes[0].pid
        self._began, self._own_began = _busy_seconds(), self._own_seconds()
        self._broker_began, self._time_began = self._broker_seconds(), time.monotonic()

    def broker_microseconds(self, count: int) -> float:
        """Return the broker's processor time per job since the start, in microseconds."""
        return round((self._broker_seconds() - self._broker_began) / count * 1e6)

    def busy_elsewhere(self) -> float:
        """Return the share of all processors that other processes have used since the start."""
        own = self._own_seconds() - self._own_began
        own += self._broker_seconds() - self._broker_began
        passed = (time.monotonic() - self._time_began) * (os.cpu_count() or 1)
        return round(max(0.0, _busy_seconds() - self._began - own) / passed, 2)

    def _broker_seconds(self) -> float:
        return process_seconds(self._broker_id) if self._broker_id else 0.0

    @staticmethod
    def _own_seconds() -> float:
        own = [process.pid for process in multiprocessing.active_children() if process.pid]
        return sum(map(process_seconds, [os.getpid(), *own]))


def _busy_seconds() -> float:
    """Return the seconds of all processors that were not idle, since the machine started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _waiting, *interrupts_and_steal = map(int, fields[:8])
    return (user + nice + system + sum(interrupts_and_steal)) / os.sysconf("SC_CLK_TCK")


def process_seconds(process_id: int) -> float:
    """Return the processor time that a process has used so far."""
    fields = Path("/proc", str(process_id), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(process_id: int | None = None) -> int:
    """Return the resident memory (RSS) of a process, by default of this one."""
    status = Path("/proc", str(process_id or os.getpid()), "status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
