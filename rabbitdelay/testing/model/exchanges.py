"""Exchanges, and the queues that a message published to one reaches."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rabbitdelay.core.topology.objects import Argument, Binding
from rabbitdelay.testing.model import patterns

ALTERNATE = "alternate-exchange"
_PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.topic": "topic",
}


@dataclass(slots=True)
class Exchange:
    """An exchange with the bindings that begin at it."""

    name: str
    type: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    bindings: dict[Binding, None] = field(default_factory=dict)
    """In the order in which they were made."""
    _indexed: dict[object, list[Binding]] = field(default_factory=dict)
    """The bindings by what a routing key must have: the whole key, or a word in its place."""

    def bind(self, binding: Binding) -> None:
        """Add a binding; has no effect if it exists."""
        if binding not in self.bindings:
            self.bindings[binding] = None
            self._indexed.setdefault(self._index(binding.key), []).append(binding)

    def unbind(self, is_gone: Callable[[Binding], bool]) -> None:
        """Remove bindings."""
        left = [one for one in self.bindings if not is_gone(one)]
        if len(left) < len(self.bindings):
            self.bindings, self._indexed = {}, {}
            for binding in left:
                self.bind(binding)

    def matching(self, key: str) -> Iterator[Binding]:
        """Yield the bindings that match a routing key."""
        if self.type != "topic":
            yield from self._indexed.get(self._index(key), ())
            return
        for index in (None, *enumerate(patterns.words(key))):
            for binding in self._indexed.get(index, ()):
                if patterns.matches(binding.key, key):
                    yield binding

    def _index(self, key: str) -> object:
        match self.type:
            case "fanout":
                return None
            case "topic":
                return patterns.first_word(key)
        return key


class Exchanges:
    """All exchanges of the broker."""

    def __init__(self) -> None:
        self._by_name = {name: Exchange(name, type_) for name, type_ in _PREDECLARED.items()}

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Exchange | None:
        """Return the exchange with this name, or None."""
        return self._by_name.get(name)

    def add(self, exchange: Exchange) -> None:
        """Add an exchange."""
        self._by_name[exchange.name] = exchange

    def remove(self, name: str) -> None:
        """Remove an exchange and all bindings from and to it."""
        self._by_name.pop(name, None)
        self.unbind(name, "exchange")

    def unbind(self, destination: str, kind: str) -> None:
        """Remove all bindings to a queue or an exchange."""
        for exchange in self:
            exchange.unbind(
                lambda one: one.destination == destination and one.destination_type == kind
            )

    def route(self, name: str, key: str) -> list[str]:
        """Return the names of the queues that a message published to an exchange reaches.

        An alternate exchange is used when its exchange has no matching binding at all, to a queue
        or to an exchange (rabbit_exchange:route).
        """
        found: dict[str, None] = {}
        seen = {name}
        waiting = [name]
        for one in waiting:
            exchange = self._by_name.get(one)
            further = () if exchange is None else _destinations(exchange, key, found)
            waiting += [other for other in further if other not in seen]
            seen.update(further)
        return list(found)


def _destinations(exchange: Exchange, key: str, queues: dict[str, None]) -> list[str]:
    """Add the queues that an exchange routes to; return the exchanges that it routes to."""
    bindings = tuple(exchange.matching(key))
    if not bindings:
        alternate = exchange.arguments.get(ALTERNATE)
        return [str(alternate)] if alternate else []
    further = []
    for binding in bindings:
        if binding.destination_type == "queue":
            queues[binding.destination] = None
        else:
            further.append(binding.destination)
    return further
