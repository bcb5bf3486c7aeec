"""Turns: which job of a worker starts next, so that no topic starves another.

Three rules this file owns:

1. A topic may start a job when a slot is free, it runs fewer than its own limit, and it takes no
   slot that a topic with nothing running would need. So a topic full of slow jobs leaves each
   other topic a slot to itself. With fewer slots than topics there is none to keep: then they
   only take turns.
2. Among those that may, the one goes first that has not started any for the longest.
3. A suspect runs alone.

A suspect is a job that the broker has redelivered twice or more: its consumer's process died with
it, and it may be what kills it. Each crash adds to the delivery count of every job that the process
holds, and at the delivery limit the broker buries them all, the innocent too. So suspects start
only when nothing else runs, in random order: the culprit takes no running job down with it, and on
average half of the others are done before it is drawn. So each crash leaves half of them, and the
innocent are done long before the limit.

Suspects and others take turns too. A suspect waits for a moment when nothing runs, or for
SUSPECT_PATIENCE_SECONDS; after that nothing else starts until what runs has ended. Suspects then
follow one another for as long as that again, and then the others have at least as long. What this
costs: with a suspect waiting, slots stand empty until the longest job that runs has ended.

The caller's loop, whenever a job has come or ended (no timer is needed: when choose says None, a
job that runs has yet to end, or nothing waits)::

    while (choice := turns.choose(waiting, suspects_since, now)) is not None:
        if isinstance(choice, Start):
            turns.started(choice.topic)
        else:
            turns.alone(topic_of_a_random_suspect, now)

and `turns.ended(topic, now)` for each job that ended, however it did. Times are seconds on a
monotonic clock.
"""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass

from rabbitdelay.errors import InvalidConfiguration

SUSPECT_DELIVERIES = 2
SUSPECT_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """A job of this topic starts."""

    topic: str


@dataclass(frozen=True, slots=True)
class StartSuspect:
    """One of the suspects starts, chosen at random, and nothing beside it."""


_START_SUSPECT = StartSuspect()
Choice = Start | StartSuspect | None


def is_suspect(redeliveries: int) -> bool:
    """Whether a job that was redelivered so often may be what kills its consumers."""
    return redeliveries >= SUSPECT_DELIVERIES


class Turns:
    """The slots of one worker: who runs, and who is next."""

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
        self._suspects_from = -math.inf  # when their turn began: the present one, or the last
        self._others_from = -math.inf  # when the last turn of the suspects ended

    @property
    def running(self) -> int:
        """How many jobs run."""
        return self._total

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self._concurrency - self._total

    def running_of(self, topic: str) -> int:
        """How many jobs of a topic run."""
        return self._running[topic]

    # What is next

    def choose(self, waiting: Container[str], suspects_since: float | None, now: float) -> Choice:
        """Return what starts now; None is nothing.

        `waiting` are the topics that have a job waiting which is no suspect. `suspects_since` is
        when the suspect came that has waited for the longest; None when there is none.
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
        """Return the topic that may start a job now, of those that have one waiting."""
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
        """Whether nothing but suspects may start: one has waited for longer than its patience."""
        if since is None:
            return False
        return now - max(since, self._others_from) > SUSPECT_PATIENCE_SECONDS

    # What has happened

    def started(self, topic: str) -> None:
        """Note that a job of a topic started: its turn is over, and the others come first."""
        self._running[topic] = self._running.pop(topic)
        self._take_slot(topic)

    def alone(self, topic: str, now: float) -> None:
        """Note that a suspect of a topic started: nothing else does until it has ended.

        Its topic keeps its turn: the jobs that wait behind a suspect are not to blame.
        """
        self._take_slot(topic)
        self._is_alone = True
        if self._suspects_from <= self._others_from:
            self._suspects_from = now

    def ended(self, topic: str, now: float) -> None:
        """Note that a job of a topic ended, a suspect or not, however it did."""
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
        raise InvalidConfiguration(f"{what} must be a whole number from 1, not {count!r}")
    return count
