"""Costs: what many messages took, measured in turns, so that noise hits every way alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.measuring import rounded_median


@dataclass(frozen=True, slots=True)
class Cost:
    """What it took to publish or consume many."""

    count: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """How many there were in a second."""
        return self.count / self.seconds

    @property
    def cpu_microseconds(self) -> float:
        """How much of a processor each took in this process, all threads together."""
        return self.cpu_seconds / self.count * 1e6


class Stopwatch:
    """Measures from its making until it is asked."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def cost(self, count: int) -> Cost:
        """Return what so many have taken."""
        cpu_seconds = time.process_time() - self._cpu_began
        return Cost(count, time.perf_counter() - self._began, cpu_seconds)


def in_turns(rounds: int, ways: Mapping[str, Callable[[], Cost]]) -> dict[str, list[Cost]]:
    """Measure one way after the other, several times: what else the machine does hits all."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            costs[name].append(way())
    return costs


def rates_and_figures(
    costs: Mapping[str, list[Cost]],
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the median rate of each way, and what a report says of it."""
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
