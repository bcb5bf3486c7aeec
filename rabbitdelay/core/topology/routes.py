"""Routes: the exchange and queues for each delay, and which of the queues are known to exist."""

from collections.abc import Iterable
from dataclasses import dataclass

from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.setup import STABILISE_SECONDS, Conversation, setup
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import PermissionRefused

MOST_ROUTES = 10_000
"""Maximum number of cached routes; the cache is cleared when it is full."""
_BASE = ""
"""Key that stands for the base of the namespace where other keys are names of queues."""


@dataclass(slots=True)
class Route:
    """The route of all jobs with the same delay, except for the topic's ready queue."""

    digits: ladder.Digits
    exchange: str
    key_prefix: str
    """The routing key without the topic."""
    hold_queues: tuple[str, ...]
    known: bool = False
    """Whether all hold queues of the route are known to exist."""


class Routes:
    """The routes of one namespace, and the queues that one connection knows to exist."""

    def __init__(
        self, topology: Topology, *, may_declare: bool, stabilise_seconds: float | None = None
    ) -> None:
        self.topology = topology
        self._may_declare = may_declare
        self._stabilise_seconds = stabilise_seconds
        self._routes: dict[int, Route] = {}
        self._topics: set[str] = set()
        self._queues: set[str] = set()
        self._safe_at: dict[str, float] = {}
        self._refusal: PermissionRefused | None = None
        """The broker's refusal to let this user declare on this connection; None if it has not
        refused."""

    @property
    def may_declare(self) -> bool:
        """Whether this client may declare missing queues, as far as it knows."""
        return self._may_declare and self._refusal is None

    def route(self, delay_ms: int) -> Route:
        """Return the route of jobs with this delay, in milliseconds."""
        route = self._routes.get(delay_ms)
        if route is None:
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            route = self._routes[delay_ms] = self._make(delay_ms)
        return route

    def parts(self, route: Route, topic: str) -> tuple[Part, ...]:
        """Return everything that a job of this topic passes through on this route."""
        return self.topology.path(route.digits, topic)

    def is_known(self, route: Route, topic: str) -> bool:
        """Whether everything that a job passes through on this route is known to exist."""
        if not (route.known and topic in self._topics) and self.are_made(self.parts(route, topic)):
            route.known = True
            self._topics.add(topic)
        return route.known and topic in self._topics

    def are_made(self, parts: Iterable[Part]) -> bool:
        """Whether these queues and the base of the namespace are known to exist."""
        names = {part.queue.name for part in parts}
        return bool(self._queues) and self._queues.issuperset(names)

    def knows(self, name: str) -> bool:
        """Whether a queue is known to exist."""
        return name in self._queues

    @property
    def has_base(self) -> bool:
        """Whether the base of the namespace is known to exist."""
        return bool(self._queues)

    def set_up(
        self,
        parts: Iterable[Part],
        *,
        with_streams: bool = True,
        may_found: bool = True,
        flush: str | None = None,
    ) -> Conversation:
        """Return a conversation that declares the queues of `parts` that are not known to exist.

        Its result is whether a crash may lose one of the queues, for `learn`. Without
        `with_streams` it does not wait for the leader of the log of deletes. Without `may_found` it
        raises an error if the namespace does not exist. New queues are not flushed if the user has
        set `stabilise_seconds`.
        """
        missing = [part for part in parts if part.queue.name not in self._queues]
        return setup(
            self.topology,
            missing,
            with_base=not self._queues,
            may_declare=self._may_declare,
            may_found=may_found,
            refusal=self._refusal,
            with_streams=with_streams,
            on_refused=self._refused,
            flush=flush if self._stabilise_seconds is None else None,
        )

    def learn(self, parts: Iterable[Part], *, unstable: bool, now: float) -> None:
        """Record that these queues exist, some of which may have been created just now.

        When nothing was known before, the whole namespace may be new, and the wait applies to all
        queues.
        """
        new = {part.queue.name for part in parts} - self._queues
        if not self._queues:
            new.add(_BASE)
        self._queues |= new
        if unstable:
            seconds = (
                STABILISE_SECONDS if self._stabilise_seconds is None else self._stabilise_seconds
            )
            self._safe_at.update(dict.fromkeys(new, now + seconds))

    def safe_at(self, route: Route, topic: str) -> float:
        """Return the time from which a crash cannot lose any queue of this route."""
        if not self._safe_at:
            return 0.0
        return self._latest((self.topology.ready_queue(topic), *route.hold_queues))

    def safe_at_queue(self, name: str) -> float:
        """Return the time from which a crash cannot lose this queue."""
        return self._latest((name,)) if self._safe_at else 0.0

    def forget_stable(self, now: float) -> None:
        """Drop the entries of queues that are safe by now."""
        if self._safe_at:
            self._safe_at = {name: at for name, at in self._safe_at.items() if at > now}

    def forget_queue(self, name: str) -> None:
        """Forget a queue that may be gone, so that it is looked up before it is used again."""
        self._queues.discard(name)
        self._safe_at.pop(name, None)
        self._routes.clear()
        self._topics.clear()

    def forget(self) -> None:
        """Forget everything: a broker that crashed may have lost the newest queues."""
        self._routes.clear()
        self._topics.clear()
        self._queues.clear()
        self._safe_at.clear()
        self._refusal = None

    def _refused(self, refusal: PermissionRefused) -> None:
        self._refusal = refusal

    def _latest(self, names: Iterable[str]) -> float:
        return max(self._safe_at.get(name, 0.0) for name in (*names, _BASE))

    def _make(self, delay_ms: int) -> Route:
        digits = ladder.to_digits(delay_ms)
        hold_queues = tuple(self.topology.hold_queue(hop) for hop in ladder.hops(digits))
        return Route(
            digits,
            self.topology.entrance(digits),
            ladder.routing_key(digits, ""),
            hold_queues,
        )
