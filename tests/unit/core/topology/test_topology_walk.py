"""Walks jobs with arbitrary delays through a pure model of the exchanges and queues."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Binding, Declaration, Exchange, Queue
from rabbitdelay.core.topology.topology import Topology

TOPIC = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
DELAY_MS = st.integers(0, ladder.MAX_DELAY_MS) | st.integers(0, 2 * ladder.HOUR_MS)


def matches(pattern: list[str], words: list[str]) -> bool:
    """Match a topic pattern as RabbitMQ does: * is one word, # is zero or more."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[start:]) for start in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


@dataclass
class Model:
    """Model of a broker's routing and expiry."""

    exchanges: dict[str, Exchange] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)

    def declare(self, declarations: Iterable[Declaration]) -> None:
        """Declare in order; the objects that a declaration names must exist already."""
        for declaration in declarations:
            match declaration:
                case Exchange(name):
                    self.exchanges[name] = declaration
                case Queue(name):
                    self.queues[name] = declaration
                case Binding(source, destination, kind, _):
                    assert source in self.exchanges
                    assert destination in (self.queues if kind == "queue" else self.exchanges)
                    self.bindings.append(declaration)

    def route(self, exchange: str, key: str) -> set[str]:
        """Return the queues that a message reaches."""
        bound = [
            binding
            for binding in self.bindings
            if binding.source == exchange and self._fits(binding, key)
        ]
        reached = {b.destination for b in bound if b.destination_type == "queue"}
        for binding in bound:
            if binding.destination_type == "exchange":
                reached |= self.route(binding.destination, key)
        alternate = self.exchanges[exchange].arguments.get("alternate-exchange")
        return self.route(str(alternate), key) if not bound and alternate else reached

    def _fits(self, binding: Binding, key: str) -> bool:
        match self.exchanges[binding.source].type:
            case "fanout":
                return True
            case "direct":
                return binding.key == key
            case "topic":
                return matches(binding.key.split("."), key.split("."))

    def walk(self, exchange: str, key: str) -> tuple[list[str], int]:
        """Follow a message until it stays in a queue.

        Return the queues passed and the total time.
        """
        passed: list[str] = []
        total_ms = 0
        while True:
            reached = self.route(exchange, key)
            assert len(reached) == 1, f"{key} at {exchange} reaches {reached}"
            queue = self.queues[reached.pop()]
            passed.append(queue.name)
            if "x-message-ttl" not in queue.arguments:
                return passed, total_ms
            total_ms += int(queue.arguments["x-message-ttl"])
            exchange = str(queue.arguments["x-dead-letter-exchange"])


def planned(topology: Topology, digits: ladder.Digits, topics: Iterable[str]) -> Model:
    model = Model()
    model.declare(topology.plan(ladder.hops(digits), topics))
    return model


@given(DELAY_MS, TOPIC, TOPIC, st.sampled_from(["quorum", "classic"]))
@example(30 * ladder.MINUTE_MS, "a.b", "b", "quorum")
@example(1_110, "x", "x.x", "quorum")
@example(0, "b", "a.b", "quorum")
@example(10, "0.0", "0", "quorum")
@example(10, ".", "..", "quorum")
def test_a_job_arrives_once_in_its_topic_after_its_rounded_delay(
    delay_ms: int, topic: str, other: str, queue_type: str
) -> None:
    """From its entrance and from each exchange above, and never in another topic's queue."""
    topology = Topology("ns", queue_type)  # type: ignore[arg-type]  # one of two literals
    digits = ladder.to_digits(delay_ms)
    model = planned(topology, digits, {topic, other})
    key = ladder.routing_key(digits, topic)
    above = [topology.level_exchange(i) for i in range(ladder.entry_index(digits) + 1)]
    for exchange in {topology.entrance(digits), *above}:
        passed, total_ms = model.walk(exchange, key)
        assert passed[-1] == topology.ready_queue(topic)
        assert total_ms == ladder.round_up(delay_ms)
        assert len(set(passed)) == len(passed), "dead-letter cycle detection would drop it"


@given(DELAY_MS, TOPIC)
def test_a_job_of_a_deleted_topic_ends_in_unrouted(delay_ms: int, topic: str) -> None:
    topology = Topology("ns")
    digits = ladder.to_digits(delay_ms)
    passed, _ = planned(topology, digits, []).walk(
        topology.entrance(digits), ladder.routing_key(digits, topic)
    )
    assert passed[-1] == topology.unrouted


@given(st.integers(10, ladder.MAX_DELAY_MS), TOPIC)
def test_a_job_whose_hold_queue_is_missing_ends_in_unrouted(delay_ms: int, topic: str) -> None:
    topology = Topology("ns")
    digits = ladder.to_digits(delay_ms)
    model = planned(topology, ladder.NO_DELAY, [topic])
    top = topology.level_exchange(0)
    assert model.route(top, ladder.routing_key(digits, topic)) == {topology.unrouted}


@given(TOPIC)
def test_a_dead_lettered_job_is_buried_in_its_topic(topic: str) -> None:
    topology = Topology("ns")
    model = planned(topology, ladder.NO_DELAY, [topic, topic + ".x"])
    ready = model.queues[topology.ready_queue(topic)].arguments
    exchange, key = ready["x-dead-letter-exchange"], ready["x-dead-letter-routing-key"]
    assert model.route(str(exchange), str(key)) == {topology.buried_queue(topic)}
