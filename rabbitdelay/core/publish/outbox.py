"""The outbox: every put from the call until the broker's confirm can be trusted.

This file owns two rules:

1. A put is resolved exactly once: confirmed, expired or refused. Until then it is in exactly one
   place: waiting to be sent, set aside, in flight on one channel, or confirmed by a queue that is
   too new to survive a crash.
2. When a connection is lost, the unresolved puts are sent again in the same order, with the same id
   and token. A put may arrive twice, but is never lost.

Times are seconds on a monotonic clock.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator

from rabbitdelay.core.publish.in_flight import Flight
from rabbitdelay.core.publish.pending import FRESH_SECONDS, LadderEntry, Pending, Target
from rabbitdelay.errors import BrokerBlocked, OutcomeUnknown

__all__ = ["FRESH_SECONDS", "LadderEntry", "Outbox", "Pending", "Target", "timeout_error"]


class Outbox:
    """The unresolved puts of a client, over one connection after another."""

    def __init__(self) -> None:
        self._waiting: deque[Pending] = deque()
        self._aside: dict[Hashable, deque[Pending]] = {}
        self._flights: list[Flight] = []
        self._stabilising: list[Pending] = []

    def __len__(self) -> int:
        aside = sum(map(len, self._aside.values())) if self._aside else 0
        return len(self._waiting) + aside + sum(map(len, self._flights)) + len(self._stabilising)

    def __iter__(self) -> Iterator[Pending]:
        for flight in self._flights:
            yield from flight
        yield from self._stabilising
        for aside in self._aside.values():
            yield from aside
        yield from self._waiting

    def add(self, pending: Pending) -> None:
        """Add a put that is to be sent."""
        self._waiting.append(pending)

    def put_back(self, *pending: Pending) -> None:
        """Put back puts that could not be sent after all, to be sent next."""
        self._waiting.extendleft(reversed(pending))

    def discard(self, pending: Pending) -> None:
        """Remove a put, wherever it is."""
        self._drop({id(pending)})

    def next(self) -> Pending | None:
        """Remove and return the next put to send."""
        return _next(self._waiting)

    # Set aside: puts that wait for the event that their key stands for

    def set_aside(self, key: Hashable, *pending: Pending) -> None:
        """Set puts aside under a key, behind those already there."""
        self._aside.setdefault(key, deque()).extend(pending)

    def set_aside_first(self, key: Hashable, *pending: Pending) -> None:
        """Set puts aside under a key, before those already there."""
        self._aside.setdefault(key, deque()).extendleft(reversed(pending))

    def has_aside(self, key: Hashable) -> bool:
        """Whether puts are set aside under a key."""
        return key in self._aside

    def next_aside(self, key: Hashable) -> Pending | None:
        """Remove and return the next put that is set aside under a key."""
        aside = self._aside.get(key)
        pending = None if aside is None else _next(aside)
        if not aside:
            self._aside.pop(key, None)
        return pending

    def bring_back(self, key: Hashable) -> None:
        """Move the puts that are set aside under a key to the front of those to send."""
        self._waiting.extendleft(reversed(self._aside.pop(key, ())))

    def aside(self, key: Hashable) -> list[Pending]:
        """Return the puts that are set aside under a key."""
        return list(self._aside.get(key, ()))

    # In flight

    def new_flight(self) -> Flight:
        """Return the flight of a new channel."""
        flight = Flight()
        self._flights.append(flight)
        return flight

    def end_flight(self, flight: Flight) -> list[Pending]:
        """End the flight of a channel; return the puts that the broker has not answered on it."""
        if flight in self._flights:
            self._flights.remove(flight)
        return flight.take_if(lambda pending: not pending.resolved)

    def confirmed(self, taken: Iterable[Pending], now: float) -> list[Pending]:
        """Record confirms; return the resolved puts. The others wait until their queue is safe."""
        done: list[Pending] = []
        for pending in taken:
            if pending.safe_at <= now:
                done.append(pending)
            else:
                pending.stabilising = True
                self._stabilising.append(pending)
        return done

    def stabilised(self, now: float) -> list[Pending]:
        """Return the confirmed puts whose queues are safe by now."""
        if not self._stabilising:
            return []
        done = [pending for pending in self._stabilising if pending.safe_at <= now]
        self._stabilising = [pending for pending in self._stabilising if pending.safe_at > now]
        return done

    def connection_lost(self) -> None:
        """End all flights, and queue every unresolved put to be sent again, in order."""
        again = [pending for pending in self if not pending.resolved]
        self._flights.clear()
        self._stabilising.clear()
        self._aside.clear()
        self._waiting = deque(sorted(again, key=lambda pending: pending.put_at))
        for pending in self._waiting:
            pending.begin_again()

    def expire(self, now: float) -> list[Pending]:
        """Remove and return the puts whose deadline has passed. A later confirm is ignored."""
        late = [pending for pending in self if pending.deadline <= now and not pending.resolved]
        if late:
            self._drop({id(pending) for pending in late})
        return late

    def _drop(self, identities: set[int]) -> None:
        def is_dropped(item: Pending) -> bool:
            return id(item) in identities

        self._waiting = deque(item for item in self._waiting if not is_dropped(item))
        self._stabilising = [item for item in self._stabilising if not is_dropped(item)]
        for key, aside in list(self._aside.items()):
            kept = self._aside[key] = deque(item for item in aside if not is_dropped(item))
            if not kept:
                del self._aside[key]
        for flight in self._flights:
            flight.take_if(is_dropped)


def _next(waiting: deque[Pending]) -> Pending | None:
    while waiting:
        pending = waiting.popleft()
        if not pending.resolved:
            return pending
    return None


def timeout_error(pending: Pending, blocked: str | None, cause: Exception | None) -> OutcomeUnknown:
    """Return the error for a message that was not confirmed in time."""
    text = f"{pending.name} was not confirmed in time: it {_fate(pending)}"
    error: OutcomeUnknown
    if blocked is not None:
        text += f"; the broker blocks publishers while an alarm is active ({blocked})"
        error = BrokerBlocked(text, sent=pending.sent)
    else:
        text += f"; {cause}" if cause else ""
        error = OutcomeUnknown(text, sent=pending.sent)
    error.__cause__ = cause
    return error


def _fate(pending: Pending) -> str:
    if pending.stabilising:
        return "is in a queue that is too new to survive a crash of the broker"
    if not pending.sent:
        return "was never sent"
    arrived = "be recorded" if pending.is_for_a_stream else "have arrived"
    return f"may or may not {arrived}"
