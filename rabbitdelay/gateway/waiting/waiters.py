"""Who waits for which topic: the first to arrive gets the next job of a topic.

A pure data structure. A waiter waits for one topic or several, and is in the line of each.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter", bound=Hashable)


class Waiters(Generic[Waiter]):
    """The waiters of each topic, in order of arrival."""

    def __init__(self) -> None:
        self._lines: dict[str, OrderedDict[Waiter, None]] = {}
        self._topics: dict[Waiter, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, waiter: Waiter) -> bool:
        return waiter in self._topics

    def add(self, waiter: Waiter, topics: Iterable[str]) -> None:
        """Add a waiter at the end of the line of each of its topics."""
        self._topics[waiter] = tuple(dict.fromkeys(topics))
        for topic in self._topics[waiter]:
            self._lines.setdefault(topic, OrderedDict())[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter from all lines; has no effect if it is in none."""
        for topic in self._topics.pop(waiter, ()):
            line = self._lines[topic]
            del line[waiter]
            if not line:
                del self._lines[topic]

    def first(self, topic: str) -> Waiter | None:
        """Return the waiter that has waited longest for a topic; None if there is none."""
        return next(iter(self._lines.get(topic, ())), None)

    def is_awaited(self, topic: str) -> bool:
        """Whether there is a waiter for a topic."""
        return topic in self._lines

    def all(self) -> list[Waiter]:
        """Return all waiters, in order of arrival."""
        return list(self._topics)
