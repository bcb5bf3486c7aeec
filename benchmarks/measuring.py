"""What every benchmark needs: its size, percentiles, what a process takes, and the report."""

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

from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.readiness import management_get

QUICK_VARIABLE = "RABBITDELAY_BENCH_QUICK"
BODY_BYTES = 256
BODY = b"x" * BODY_BYTES
TOPIC = "bench"

_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system


@dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found: one line for programs, one sentence for people."""

    name: str
    broker: str
    figures: Mapping[str, Any]
    ratios: Mapping[str, float]
    target: str
    ok: bool
    sentence: str

    def show(self) -> None:
        """Print both. A missed target is a finding, and no failure of the benchmark."""
        line = asdict(self)
        sentence = line.pop("sentence")
        print(json.dumps(line))
        print(sentence, flush=True)


def is_quick(description: str | None) -> bool:
    """Whether to take small sizes: to try a benchmark out, never for figures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    chosen: bool = parser.parse_args().quick
    return chosen or bool(os.environ.get(QUICK_VARIABLE))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def rounded_median(values: Sequence[float]) -> float:
    """Return the median, without digits that say nothing."""
    return round(median(values), 1)


def broker_version(broker: PrivateBroker) -> str:
    """Return the version of the RabbitMQ that runs."""
    overview = management_get(broker.nodes[0].layout.management_port, "/api/overview")
    return str(overview["rabbitmq_version"]) if overview else "unknown"


def broker_memory_bytes(broker: PrivateBroker) -> int:
    """Return the memory that the broker itself counts, as its management UI shows it."""
    port = broker.nodes[0].layout.management_port
    nodes = management_get(port, "/api/nodes?columns=mem_used") or [{"mem_used": 0}]
    return int(nodes[0]["mem_used"])


def disk_bytes(directory: Path) -> int:
    """Return what the files of a folder take on the disk."""
    return sum(path.stat().st_blocks for path in directory.rglob("*") if path.is_file()) * (
        _BLOCK_BYTES
    )


class ProcessorWatch:
    """Tells how busy the processors were: the broker, and what is none of this benchmark.

    Lateness on a machine that others keep busy says more about them than about a ladder.
    """

    def __init__(self, broker: PrivateBroker) -> None:
        self._broker_id = broker.nodes[0].pid
        self._began, self._own_began = _busy_seconds(), self._own_seconds()
        self._broker_began, self._time_began = self._broker_seconds(), time.monotonic()

    def broker_microseconds(self, count: int) -> float:
        """Return the broker's processor time since the beginning, for each of so many jobs."""
        return round((self._broker_seconds() - self._broker_began) / count * 1e6)

    def busy_elsewhere(self) -> float:
        """Return the share of all processors that others have used since the beginning."""
        own = self._own_seconds() - self._own_began
        own += self._broker_seconds() - self._broker_began
        passed = (time.monotonic() - self._time_began) * (os.cpu_count() or 1)
        return round(max(0.0, _busy_seconds() - self._began - own) / passed, 2)

    def _broker_seconds(self) -> float:
        return _process_seconds(self._broker_id) if self._broker_id else 0.0

    @staticmethod
    def _own_seconds() -> float:
        own = [process.pid for process in multiprocessing.active_children() if process.pid]
        return sum(map(_process_seconds, [os.getpid(), *own]))


def _busy_seconds() -> float:
    """All processors' time that was not idle, since the machine started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _waiting, *interrupts_and_steal = map(int, fields[:8])
    return (user + nice + system + sum(interrupts_and_steal)) / os.sysconf("SC_CLK_TCK")


def _process_seconds(process_id: int) -> float:
    fields = Path("/proc", str(process_id), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(process_id: int | None = None) -> int:
    """Return the memory (RSS) of a process, or of this one."""
    status = Path("/proc", str(process_id or os.getpid()), "status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
