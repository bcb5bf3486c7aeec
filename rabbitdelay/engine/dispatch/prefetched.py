"""The jobs that a worker has prefetched and not started, and the suspects among them."""

import random
from collections import deque
from collections.abc import Iterable

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.scheduler import is_suspect


class Prefetched:
    """Prefetched jobs.

    A topic is `in` the collection if one of its jobs is waiting and is not a suspect.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._by_topic: dict[str, deque[Lease]] = {topic: deque() for topic in topics}
        self._suspects: list[Lease] = []
        self.count = 0
        """Number of waiting jobs, including suspects. Only this class changes it."""
        self.suspects_since: float | None = None
        """Monotonic time since which suspects wait; None if there are none."""

    def __contains__(self, topic: object) -> bool:
        return isinstance(topic, str) and bool(self._by_topic[topic])

    def add(self, lease: Lease, now: float) -> None:
        """Add a job."""
        self.count += 1
        if is_suspect(lease.redeliveries):
            self._suspects.append(lease)
            self.suspects_since = now if self.suspects_since is None else self.suspects_since
        else:
            self._by_topic[lease.job.topic].append(lease)

    def put_back(self, lease: Lease, now: float) -> None:
        """Add a job that could not be handed out, as the next of its topic."""
        self.add(lease, now)
        if not is_suspect(lease.redeliveries):
            self._by_topic[lease.job.topic].rotate(1)

    def take(self, topic: str) -> Lease:
        """Remove and return the next job of a topic."""
        self.count -= 1
        return self._by_topic[topic].popleft()

    def take_suspect(self, now: float) -> Lease:
        """Remove and return a suspect, chosen at random."""
        self.count -= 1
        place = random.randrange(len(self._suspects))  # noqa: S311 - a draw
        lease = self._suspects.pop(place)
        self.suspects_since = now if self._suspects else None
        return lease

    def take_of(self, topic: str) -> list[Lease]:
        """Remove and return all jobs of a topic."""
        found = [*self._by_topic[topic]]
        found += [lease for lease in self._suspects if lease.job.topic == topic]
        self.forget(topic)
        return found

    def take_all(self) -> list[Lease]:
        """Remove and return all jobs."""
        return [lease for topic in self._by_topic for lease in self.take_of(topic)]

    def forget(self, topic: str) -> None:
        """Remove the jobs of a topic, which the broker has requeued."""
        self._by_topic[topic].clear()
        self._suspects = [lease for lease in self._suspects if lease.job.topic != topic]
        if not self._suspects:
            self.suspects_since = None
        self.count = len(self._suspects) + sum(map(len, self._by_topic.values()))
