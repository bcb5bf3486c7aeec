"""The scheduler: which job of a worker starts next, so that no topic starves another.

This file owns three rules:

1. A topic may start a job if a slot is free, it runs fewer jobs than its own limit, and the slot is
   not needed by a topic that runs nothing. A topic full of slow jobs therefore leaves each other
   topic a slot. With fewer slots than topics, none can be reserved, and topics only take turns.
2. Among the topics that may start a job, the one whose last start is longest ago goes first.
3. A suspect runs alone.

A suspect is a job that the broker has redelivered at least twice: its consumers' processes died,
and the job may be the cause. Each crash adds to the delivery count of every job that the process
has, and at the delivery limit the broker buries them all, including the innocent ones. So suspects
start only when nothing else runs, in random order: the culprit takes no running job down with it,
and on average half of the other suspects are done before it is drawn. Each crash thus halves the
suspects, and the innocent ones are done long before the limit.

Suspects and other jobs take turns, too. A suspect waits for a moment when nothing runs, but at most
SUSPECT_PATIENCE_SECONDS; after that nothing else starts until all running jobs have ended. Suspects
then follow one another for the same time, and then the other jobs have at least as long. The cost:
while a suspect waits, slots stay empty until the longest running job has ended.

The caller runs this loop whenever a job has arrived or ended. No timer is needed: when `choose`
returns None, a running job has yet to end, or no job is waiting::

    while (choice := scheduler.choose(waiting, suspects_since, now)) is not None:
        if isinstance(choice, Start):
            scheduler.started(choice.topic)
        else:
            scheduler.alone(topic_of_a_random_suspect, now)

It also calls `scheduler.ended(topic, now)` for each job that has ended, with or without success.

Times are seconds on a monotonic clock.
"""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass

from rabbitdelay.errors import InvalidConfiguration

SUSPECT_DELIVERIES = 2
SUSPECT_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """Start a job of this topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class StartSuspect:
    """Start one of the suspects, chosen at random, and no other job beside it."""


_START_SUSPECT = StartSuspect()
Choice = Start | StartSuspect | None


def is_suspect(redeliveries: int) -> bool:
    """Whether a job with this many redeliveries may be the one that kills its consumers."""
    return redeliveries >= SUSPECT_DELIVERIES


class Scheduler:
    """The slots of one worker, and the order in which topics use them."""

    def __init__(self, concurrency: int, limits: Mapping[str, int | None]) -> None:
        """Share `concurrency` slots among topics; None is a topic without a limit of its own."""
        self._concurrency = _checked(concurrency, "concurrency")
        self._limits = {
            topic: concurrency if limit is None else _checked(limit, f"concurrency of {topic}")
            for topic, limit in limits.items()
        }
        self._starts = {topic: Start(topic) for topic in limits}
        self._running = dict.fromkeys(limits, 0)  # in the order of their last start
        self._total = 0
        self._idle_topics = len(limits)
        self._keeps_slots = concurrency >= len(limits)
        self._is_alone = False
        self._suspects_from = -math.inf  # start of the suspects' current or last turn
        self._others_from = -math.inf  # end of the suspects' last turn

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return self._total

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._concurrency - self._total

    def running_of(self, topic: str) -> int:
        """Return the number of running jobs of a topic."""
        return self._running[topic]

    # Choosing

    def choose(self, waiting: Container[str], suspects_since: float | None, now: float) -> Choice:
        """Return the choice of the job to start now; None if no job may start.

        `waiting` are the topics with a waiting job that is not a suspect. `suspects_since` is the
        arrival time of the suspect that has waited longest; None if there is none.
        """
        if self._is_alone:
            return None
        if self.suspects_turn(suspects_since, now):
            return _START_SUSPECT if self.may_run_alone() else None
        topic = self.next(waiting)
        if topic is not None:
            return self._starts[topic]
        return _START_SUSPECT if suspects_since is not None and self.may_run_alone() else None

    def next(self, waiting: Container[str]) -> str | None:
        """Return the topic that may start a job now, among those with one waiting."""
        if self._total >= self._concurrency:
            return None
        for topic in self._running:
            if topic in waiting and self._may_start(topic):
                return topic
        return None

    def may_run_alone(self) -> bool:
        """Whether a suspect may start."""
        return self._total == 0

    def suspects_turn(self, since: float | None, now: float) -> bool:
        """Whether only suspects may start, because one has waited for too long."""
        if since is None:
            return False
        return now - max(since, self._others_from) > SUSPECT_PATIENCE_SECONDS

    # Recording

    def started(self, topic: str) -> None:
        """Record that a job of a topic started. The topic moves to the end of the order."""
        self._running[topic] = self._running.pop(topic)
        self._take_slot(topic)

    def alone(self, topic: str, now: float) -> None:
        """Record that a suspect of a topic started. No other job starts until it has ended.

        The topic keeps its place in the order, because the jobs behind a suspect are not to blame.
        """
        self._take_slot(topic)
        self._is_alone = True
        if self._suspects_from <= self._others_from:
            self._suspects_from = now

    def ended(self, topic: str, now: float) -> None:
        """Record that a job of a topic has ended, suspect or not, with or without success."""
        self._running[topic] -= 1
        self._total -= 1
        self._idle_topics += self._running[topic] == 0
        if self._is_alone:
            self._is_alone = False
            if now - self._suspects_from >= SUSPECT_PATIENCE_SECONDS:
                self._others_from = now

    def _take_slot(self, topic: str) -> None:
        self._idle_topics -= self._running[topic] == 0
        self._running[topic] += 1
        self._total += 1

    def _may_start(self, topic: str) -> bool:
        count = self._running[topic]
        if self._is_alone or count >= self._limits[topic]:
            return False
        free = self._concurrency - self._total
        return free > 0 and (count == 0 or not self._keeps_slots or free > self._idle_topics)


def _checked(count: int, what: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidConfiguration(f"{what} must be an integer of at least 1, not {count!r}")
    return count
