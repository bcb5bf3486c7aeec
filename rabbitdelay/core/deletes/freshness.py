"""The proof that a consumer knows every delete, and its age.

A consumer proves it with a fence, a record of its own in the log of deletes. Every delete that was
confirmed before the fence was written precedes it in the log. So when a consumer has read its
fence, it knows every delete that was confirmed before it *wrote* the fence. The age of the proof
counts from then, not from reading the fence.

A connection may stop delivering without an error, and a replica of the log may lag. So a proof
expires after FRESH_SECONDS. A connection on which every fence takes longer than that needs more
time, so the shortest of the last round trips is added. The shortest one, because a single delayed
fence says nothing about the connection.

Times are seconds on a monotonic clock.
"""

import math
from collections import deque
from enum import Enum, auto
from typing import NamedTuple

FRESH_SECONDS = 2.0
"""A job is delivered only on a proof younger than this plus a round trip."""
REFRESH_SECONDS = 1.0
"""Age at which a busy consumer renews its proof, so that it never has to wait for one."""
LONGEST_ROUND_TRIP_SECONDS = 10.0
"""Upper bound of the round trip that is added."""
_ROUND_TRIPS = 8
_FEWEST_ROUND_TRIPS = 2


class Freshness(Enum):
    """The consequence of a proof's age for the delivery of a job."""

    FRESH = auto()
    """Deliver the job."""
    AGING = auto()
    """Deliver the job, and renew the proof."""
    STALE = auto()
    """Renew the proof, and deliver the job afterwards."""


class _Written(NamedTuple):
    at: float
    measure: bool
    """Whether its round trip tells about the connection."""


class Proof:
    """The fences of one consumer: those in flight, and the newest that was read."""

    def __init__(self) -> None:
        self._awaited: dict[str, _Written] = {}
        self._proven_at = -math.inf
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self._limit_seconds = FRESH_SECONDS

    @property
    def is_awaited(self) -> bool:
        """Whether a fence is in flight."""
        return bool(self._awaited)

    @property
    def limit_seconds(self) -> float:
        """Age at which the proof is stale."""
        return self._limit_seconds

    def wrote(self, nonce: str, now: float, *, measure: bool) -> None:
        """Record that a fence was written.

        `measure` unless much of the log has yet to be read first.
        """
        self._awaited[nonce] = _Written(now, measure)

    def came_back(self, nonce: str, now: float) -> bool:
        """Record that a fence was read; return whether it was one in flight."""
        written = self._awaited.get(nonce)
        if written is None:
            return False
        if written.measure:
            self._measure(now - written.at)
        self._proven_at = max(self._proven_at, written.at)
        del self._awaited[nonce]
        for one in [one for one, other in self._awaited.items() if other.at < written.at]:
            del self._awaited[one]
        return True

    def failed(self, nonce: str) -> None:
        """Remove a fence that was not written."""
        self._awaited.pop(nonce, None)

    def void(self) -> None:
        """Reset, because the connection or the position in the log has changed."""
        self._awaited.clear()
        self._round_trips.clear()
        self._proven_at = -math.inf
        self._limit_seconds = FRESH_SECONDS

    def freshness(self, now: float) -> Freshness:
        """Return what to do with a job that could be delivered now."""
        age = now - self._proven_at
        if age < REFRESH_SECONDS:
            return Freshness.FRESH
        return Freshness.AGING if age < self._limit_seconds else Freshness.STALE

    def _measure(self, round_trip_seconds: float) -> None:
        self._round_trips.append(round_trip_seconds)
        if len(self._round_trips) >= _FEWEST_ROUND_TRIPS:
            shortest = min(*self._round_trips, LONGEST_ROUND_TRIP_SECONDS)
            self._limit_seconds = FRESH_SECONDS + shortest
