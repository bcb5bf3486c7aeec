"""Callbacks that are due later."""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from rabbitdelay.testing.time.places import Act, Place


@dataclass(slots=True, order=True)
class Timer:
    """A callback that is due at a time."""

    due: float
    order: int
    place: Place = field(compare=False)
    act: Act = field(compare=False)
    may_be_late: bool = field(default=False, compare=False)
    is_cancelled: bool = field(default=False, compare=False)

    def run(self) -> None:
        """Run the callback, unless it was cancelled meanwhile."""
        if not self.is_cancelled:
            self.act()

    def cancel(self) -> None:
        """Cancel the callback, and forget what it refers to."""
        self.is_cancelled = True
        self.act = _nothing


class Timers:
    """All timers, by the time at which they are due.

    Those that may be late do not move the virtual clock: a month without jobs would otherwise
    consist of millions of looks at whether there is anything to do.
    """

    def __init__(self) -> None:
        self._punctual: list[Timer] = []
        self._unpunctual: list[Timer] = []
        self._orders = itertools.count()

    def add(self, due: float, place: Place, act: Act, *, may_be_late: bool) -> Timer:
        """Add a timer."""
        timer = Timer(due, next(self._orders), place, act, may_be_late)
        heapq.heappush(self._unpunctual if may_be_late else self._punctual, timer)
        return timer

    def next_due(self, *, may_be_late: bool = False) -> float | None:
        """Return when the next timer is due, of those that may be late or of the others."""
        timers = self._unpunctual if may_be_late else self._punctual
        while timers and timers[0].is_cancelled:
            heapq.heappop(timers)
        return timers[0].due if timers else None

    def take_due(self, now: float, *, late_seconds: float) -> Iterator[Timer]:
        """Remove and yield the timers that are due, in order.

        Those that may be late count as due only after `late_seconds` more.
        """
        latest = now - late_seconds
        if not (_is_due(self._punctual, now) or _is_due(self._unpunctual, latest)):
            return
        due = [*_take_due(self._punctual, now), *_take_due(self._unpunctual, latest)]
        yield from sorted(due)


def _nothing() -> None:
    """Do nothing, in place of a cancelled callback."""


def _is_due(timers: list[Timer], now: float) -> bool:
    return bool(timers) and timers[0].due <= now


def _take_due(timers: list[Timer], now: float) -> Iterator[Timer]:
    while timers and timers[0].due <= now:
        timer = heapq.heappop(timers)
        if not timer.is_cancelled:
            yield timer
