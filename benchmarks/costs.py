"""Measure the time and processor cost of messages, alternating the candidates against noise."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.measuring import rounded_median


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of publishing or consuming a number of messages."""

    count: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """Messages per second."""
        return self.count / self.seconds

    @property
    def cpu_microseconds(self) -> float:
        """Processor time per message in this process, over all threads, in microseconds."""
        return self.cpu_seconds / self.count * 1e6


class Stopwatch:
    """Measures the cost since its creation."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def cost(self, count: int) -> Cost:
        """Return the cost of `count` messages so far."""
        cpu_seconds = time.process_time() - self._cpu_began
        return Cost(count, time.perf_counter() - self._began, cpu_seconds)


def in_turns(rounds: int, ways: Mapping[str, Callable[[], Cost]]) -> dict[str, list[Cost]]:
    """Measure the candidates alternately, so that noise from the machine affects all of them."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            costs[name].append(way())
    return costs


def rates_and_figures(
    costs: Mapping[str, list[Cost]],
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the median rate of each candidate, and the figures for a report."""
    rates = {name: rounded_median([one.per_second for one in each]) for name, each in costs.items()}
    figures: dict[str, dict[str, float]] = {
        name: {
            "per_second": round(rates[name]),
            "lowest": round(min(one.per_second for one in each)),
            "highest": round(max(one.per_second for one in each)),
            "cpu_us_per_message": rounded_median([one.cpu_microseconds for one in each]),
        }
        for name, each in costs.items()
    }
    return rates, figures
