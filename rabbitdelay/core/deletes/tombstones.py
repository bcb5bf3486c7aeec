"""The tombstones: which jobs are dead, and which topics are paused, as far as the log was read.

A tombstone kills by id and time, or by one token. "Only this token lives" is a time too, with the
token behind it: what was put before, or in the same millisecond with a lower token, is dead. So of
two that replace each other in one millisecond, one is left.

A tombstone is needed until the last job that it may kill has been handed out: until that job is
due, as far as that is known, and for a grace after it, in which it may wait for a consumer. What
was forgotten is not guessed at: of a job that was due before that, this set says it is not sure.

Two rules this file owns:

1. Whatever is added is joined: twice or in another order gives the same answers. Pause and resume
   are the exception: the one that is later in the log counts.
2. What a tombstone has killed it kills for as long as it lives, whatever else is added.
"""

from dataclasses import dataclass
from enum import Enum

from rabbitdelay.core.deletes import tombstone_table
from rabbitdelay.core.deletes.records import (
    Delete,
    Exact,
    Horizon,
    Keep,
    Pause,
    Purge,
    Record,
    Resume,
)
from rabbitdelay.core.deletes.tombstone_table import Kill, Stones
from rabbitdelay.core.jobs import ids
from rabbitdelay.core.topology import ladder

GRACE_MS = 24 * ladder.HOUR_MS
"""How long a job may wait for a consumer after it was due, and its tombstone is still known."""
LONG_MS = GRACE_MS // 2
"""How much later than its id says a job may be due, and need not be told of."""
HORIZON_MS = 30 * ladder.DAY_MS
"""How long ahead a job with a chosen id is put, unless the log says more."""

_BEFORE_ALL = -1


class Death(Enum):
    """Why a job is dead. The value is what people read."""

    DELETED = "deleted"
    REPLACED = "replaced by another job of its id"
    PURGED = "purged with its topic"


@dataclass(frozen=True, slots=True)
class Switch:
    """Whether a topic is paused, and where in the log it says so."""

    position: int
    is_paused: bool


class Tombstones:
    """The set that one consumer keeps."""

    def __init__(self, *, grace_ms: int = GRACE_MS, floor_ms: int = 0) -> None:
        self.grace_ms = grace_ms
        self.floor_ms = floor_ms
        """What was needed no longer than this may have been forgotten."""
        self.horizon_ms = HORIZON_MS
        self.stones = Stones()
        self.purges: dict[str, int] = {}
        """When a topic was purged last. A topic has one, and it is kept for good."""
        self.switches: dict[str, Switch] = {}
        self._swept = 0

    # Adding

    def add(self, record: Record, position: int = 0) -> None:
        """Take in a record, from this position of the log."""
        match record:
            case Delete(targets):
                for target in targets:
                    self._delete(record, target)
            case Keep():
                self._keep(record)
            case Purge(topic, time_ms):
                self.purge(topic, time_ms)
            case Pause(topic, since):
                self.switch(topic, Switch(position if since is None else since, is_paused=True))
            case Resume(topic):
                self.switch(topic, Switch(position, is_paused=False))
            case Horizon(delay_ms):
                self.raise_horizon(delay_ms)

    def purge(self, topic: str, time_ms: int) -> None:
        """Join a purge."""
        self.purges[topic] = max(time_ms, self.purges.get(topic, time_ms))

    def switch(self, topic: str, switch: Switch) -> None:
        """Join a pause or a resume."""
        there = self.switches.get(topic)
        if there is None or there.position < switch.position:
            self.switches[topic] = switch

    def raise_horizon(self, delay_ms: int) -> None:
        """Join a horizon. No job can be put farther ahead than the longest delay."""
        self.horizon_ms = max(self.horizon_ms, min(delay_ms, ladder.MAX_DELAY_MS))

    # Asking

    def kills(self, topic: str, id: str, token: str, put_ms: int | None) -> Death | None:
        """Whether a job is dead, and why.

        When nobody knows when it was put, a delete of its id is taken to be for it, and a purge is
        not: that would kill all that is ever put without a time.
        """
        if put_ms is None:
            put_ms = 1  # not 0: that is what `known_until` names, which kills nothing
        elif put_ms <= self.purges.get(topic, -1):
            return Death.PURGED
        kill = self.stones.kill(id, put_ms, token)
        if kill is None:
            return None
        return Death.REPLACED if kill is Kill.BY_ANOTHER else Death.DELETED

    def is_sure_of(self, due_ms: int) -> bool:
        """Whether everything that may have killed a job that was due then is still known."""
        return due_ms >= self.floor_ms or self.floor_ms <= 0

    def is_paused(self, topic: str) -> bool:
        """Whether no job of this topic is handed out."""
        switch = self.switches.get(topic)
        return switch is not None and switch.is_paused

    @property
    def paused(self) -> set[str]:
        """The topics of which no job is handed out."""
        return {topic for topic, switch in self.switches.items() if switch.is_paused}

    @property
    def count(self) -> int:
        """How many tombstones there are."""
        return self.stones.count + len(self.purges)

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take."""
        return self.stones.memory_bytes

    def records(self, *, for_another_log: bool) -> list[Record]:
        """What is known besides the stones: to be written again, here or into another log."""
        pauses = [
            Pause(topic, None if for_another_log else self.switches[topic].position)
            for topic in sorted(self.paused)
        ]
        purges = (Purge(topic, time_ms) for topic, time_ms in self.purges.items())
        return [Horizon(self.horizon_ms), *purges, *pauses]

    # Forgetting

    def forget_positions(self) -> None:
        """Another log begins: whatever it says of a topic comes after what is known of it."""
        self.switches = {
            topic: Switch(_BEFORE_ALL, switch.is_paused) for topic, switch in self.switches.items()
        }

    def expire(self, now_ms: int) -> None:
        """Forget what is not needed any more."""
        self._forget_before(now_ms - self.grace_ms)
        self.stones.expire(self.floor_ms)

    def expire_some(self, before_ms: int, share: float) -> None:
        """Forget, in a share of the table, what was not needed after a time; one after the other.

        All of it takes half a second with a million, in which nothing else is done.
        """
        self._forget_before(before_ms)
        many = max(1, int(len(self.stones) * share))
        begin = self._swept if self._swept < len(self.stones) else 0
        self._swept = min(begin + many, len(self.stones))
        self.stones.expire(self.floor_ms, range(begin, self._swept))

    def _forget_before(self, time_ms: int) -> None:
        self.floor_ms = max(self.floor_ms, time_ms)

    # Pieces

    def _delete(self, record: Delete, target: str | Exact) -> None:
        if isinstance(target, Exact):
            last_ms = max(target.due_ms, record.time_ms, self._known_until_ms(target.id))
            self._add(target.id, tombstone_table.exact(target.id, target.token, last_ms), last_ms)
        else:
            last_ms = self._last_ms(target, record.time_ms, record.due_ms)
            self._add(target, tombstone_table.before(target, record.time_ms, last_ms), last_ms)

    def _keep(self, record: Keep) -> None:
        last_ms = max(record.due_ms, self._last_ms(record.id, record.time_ms, None))
        stone = tombstone_table.all_but(record.id, record.token, record.time_ms, last_ms)
        self._add(record.id, stone, last_ms)
        for token in record.instead_of:
            self._add(record.id, tombstone_table.exact(record.id, token, last_ms), last_ms)

    def _last_ms(self, id: str, time_ms: int, due_ms: int | None) -> int:
        """When the last job that a tombstone may kill is due, or may be."""
        if due_ms is None:
            due_ms = ids.due_ms(id)
        return max(time_ms, time_ms + self.horizon_ms if due_ms is None else due_ms)

    def _known_until_ms(self, id: str) -> int:
        """When the last job of an id is due, as far as its stones tell: it may be a later copy."""
        return max(map(tombstone_table.last_ms, self.stones.of(id)), default=0)

    def _add(self, id: str, stone: bytes, last_ms: int) -> None:
        # Of an id that is still known a job may be due later than this record could know.
        if last_ms >= self.floor_ms or self.stones.of(id):
            self.stones.add(stone)
