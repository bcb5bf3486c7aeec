"""Routes: where a job goes, and which of the queues on its way are known to be there."""

from collections.abc import Iterable
from dataclasses import dataclass

from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.setup import SETTLE_SECONDS, Conversation, setup
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import PermissionRefused

MOST_ROUTES = 10_000
"""How many delays are remembered; with more different ones, all are worked out anew."""
_BASE = ""
"""Stands among the names of queues for what every namespace has."""


@dataclass(slots=True)
class Route:
    """Where jobs with one delay go."""

    digits: ladder.Digits
    exchange: str
    key_prefix: str
    """The routing key, but for the topic."""
    hold_queues: tuple[str, ...]
    known: bool = False
    """Whether all its hold queues are known to be there."""


class Routes:
    """The routes of one namespace, as far as one connection knows them."""

    def __init__(
        self, topology: Topology, *, may_declare: bool, settle_seconds: float | None = None
    ) -> None:
        self.topology = topology
        self._may_declare = may_declare
        self._settle_seconds = settle_seconds
        self._routes: dict[int, Route] = {}
        self._topics: set[str] = set()
        self._queues: set[str] = set()
        self._safe_at: dict[str, float] = {}
        self._refusal: PermissionRefused | None = None
        """The broker's refusal to let this user declare, on this connection."""

    @property
    def may_declare(self) -> bool:
        """Whether missing queues can be made, as far as is known."""
        return self._may_declare and self._refusal is None

    def route(self, delay_ms: int) -> Route:
        """Return where jobs with this delay go."""
        route = self._routes.get(delay_ms)
        if route is None:
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            route = self._routes[delay_ms] = self._make(delay_ms)
        return route

    def parts(self, route: Route, topic: str) -> tuple[Part, ...]:
        """Return everything that a job passes through on this way."""
        return self.topology.path(route.digits, topic)

    def is_known(self, route: Route, topic: str) -> bool:
        """Whether everything that a job passes through is known to be there."""
        if not (route.known and topic in self._topics) and self.are_made(self.parts(route, topic)):
            route.known = True
            self._topics.add(topic)
        return route.known and topic in self._topics

    def are_made(self, parts: Iterable[Part]) -> bool:
        """Whether these queues are known to be there, with all that every namespace has."""
        names = {part.queue.name for part in parts}
        return bool(self._queues) and self._queues.issuperset(names)

    def knows(self, name: str) -> bool:
        """Whether a queue is known to be there."""
        return name in self._queues

    @property
    def has_base(self) -> bool:
        """Whether what every namespace has is known to be there."""
        return bool(self._queues)

    def set_up(
        self,
        parts: Iterable[Part],
        *,
        with_streams: bool = True,
        may_found: bool = True,
        flush: str | None = None,
    ) -> Conversation:
        """Make sure of what is not known yet: a conversation for the front to drive.

        It returns whether a crash may lose one of the queues, for `learn`. Without the streams of
        the base it does not wait for the leader of the log of deletes. Unless it may found a
        namespace, one that does not exist is an error. Where the user says how long new queues
        settle, they are not flushed.
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
            flush=flush if self._settle_seconds is None else None,
        )

    def learn(self, parts: Iterable[Part], *, unsettled: bool, now: float) -> None:
        """Note that these queues are there, some of them perhaps made just now.

        If so at first, the namespace itself may be new, and all its queues have to settle.
        """
        new = {part.queue.name for part in parts} - self._queues
        if not self._queues:
            new.add(_BASE)
        self._queues |= new
        if unsettled:
            seconds = SETTLE_SECONDS if self._settle_seconds is None else self._settle_seconds
            self._safe_at.update(dict.fromkeys(new, now + seconds))

    def safe_at(self, route: Route, topic: str) -> float:
        """When the youngest queue on this way will have settled."""
        if not self._safe_at:
            return 0.0
        return self._latest((self.topology.ready_queue(topic), *route.hold_queues))

    def safe_at_queue(self, name: str) -> float:
        """When this queue will have settled."""
        return self._latest((name,)) if self._safe_at else 0.0

    def forget_settled(self, now: float) -> None:
        """Stop counting what has settled by now."""
        if self._safe_at:
            self._safe_at = {name: at for name, at in self._safe_at.items() if at > now}

    def forget_queue(self, name: str) -> None:
        """Look for a queue again before it is used, because it may be gone."""
        self._queues.discard(name)
        self._safe_at.pop(name, None)
        self._routes.clear()
        self._topics.clear()

    def forget(self) -> None:
        """Know nothing: a broker that crashed may have lost what was made just before."""
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
