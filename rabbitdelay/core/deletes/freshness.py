"""The proof that a consumer knows every delete, and how old it is.

A consumer proves it with a fence, a record of its own in the log of deletes. Every delete that was
confirmed before the fence was written precedes it in the log. So when a consumer has read its
fence, it knows every delete that returned before it *wrote* the fence: the age of the proof counts
from there, not from the fence's return.

A connection may fall silent without an error, and a replica of the log may fall behind. So a proof
is worth nothing after FRESH_SECONDS. A wire on which every fence takes longer than that needs more
time: the shortest of the last round trips is added. The shortest, because a fence that was held up
once says nothing about the wire.

Times are seconds on a monotonic clock.
"""

import math
from collections import deque
from enum import Enum, auto
from typing import NamedTuple

FRESH_SECONDS = 2.0
"""A job is handed out only on proof that is younger than this, plus a round trip."""
REFRESH_SECONDS = 1.0
"""A busy consumer renews its proof from this age on, so that it never has to wait for it."""
LONGEST_ROUND_TRIP_SECONDS = 10.0
"""No longer round trip is allowed for."""
_ROUND_TRIPS = 8
_FEWEST_ROUND_TRIPS = 2


class Freshness(Enum):
    """What the age of a proof means for a hand-out."""

    FRESH = auto()
    """Hand out."""
    AGING = auto()
    """Hand out, and renew the proof."""
    STALE = auto()
    """Renew the proof, and hand out when that is done."""


class _Written(NamedTuple):
    at: float
    measure: bool
    """Whether its round trip tells about the wire."""


class Proof:
    """The fences of one consumer: those on their way, and the newest that has come back."""

    def __init__(self) -> None:
        self._awaited: dict[str, _Written] = {}
        self._proven_at = -math.inf
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self._limit_seconds = FRESH_SECONDS

    @property
    def is_awaited(self) -> bool:
        """Whether a fence is on its way."""
        return bool(self._awaited)

    @property
    def limit_seconds(self) -> float:
        """The age at which the proof is stale."""
        return self._limit_seconds

    def wrote(self, nonce: str, now: float, *, measure: bool) -> None:
        """Await a fence; `measure` unless much of the log is yet to be read before it comes."""
        self._awaited[nonce] = _Written(now, measure)

    def came_back(self, nonce: str, now: float) -> bool:
        """Note that a fence was read; True if it is one on its way."""
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
        """Await a fence no more: it was not written."""
        self._awaited.pop(nonce, None)

    def void(self) -> None:
        """Forget everything: the connection, or the place in the log, is another."""
        self._awaited.clear()
        self._round_trips.clear()
        self._proven_at = -math.inf
        self._limit_seconds = FRESH_SECONDS

    def freshness(self, now: float) -> Freshness:
        """Return what to do about a job that is to be handed out now."""
        age = now - self._proven_at
        if age < REFRESH_SECONDS:
            return Freshness.FRESH
        return Freshness.AGING if age < self._limit_seconds else Freshness.STALE

    def _measure(self, round_trip_seconds: float) -> None:
        self._round_trips.append(round_trip_seconds)
        if len(self._round_trips) >= _FEWEST_ROUND_TRIPS:
            shortest = min(*self._round_trips, LONGEST_ROUND_TRIP_SECONDS)
            self._limit_seconds = FRESH_SECONDS + shortest
