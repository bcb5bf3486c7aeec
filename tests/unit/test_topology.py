"""The topology as data."""

import json

import pytest

from rabbitdelay.core import ladder
from rabbitdelay.core.definitions import definitions
from rabbitdelay.core.topology import Exchange, Queue, Topology
from rabbitdelay.errors import InvalidConfiguration

EVERY_HOP = [
    ladder.Hop(level, digit)
    for level in ladder.LEVELS
    for digit in range(1, level.highest_digit + 1)
]


def test_every_exchange_but_the_last_resort_has_an_alternate() -> None:
    topology = Topology("ns")
    exchanges = [d for d in topology.plan(EVERY_HOP, ["a"]) if isinstance(d, Exchange)]
    without = {e.name for e in exchanges if "alternate-exchange" not in e.arguments}
    assert without == {topology.unrouted, topology.settling}


def test_no_queue_of_jobs_can_drop_one() -> None:
    """No length limit, no expiry of the queue, and dead-lettering with confirms."""
    topology = Topology("ns")
    queues = [d for d in topology.plan(EVERY_HOP, ["a"]) if isinstance(d, Queue)]
    for queue in queues:
        assert queue.arguments["x-queue-type"] == "quorum"
        assert not queue.arguments.keys() & {"x-max-length", "x-max-length-bytes", "x-expires"}
        if "x-dead-letter-exchange" in queue.arguments:
            assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"


def test_names_of_namespaces_topics_and_kinds_never_collide() -> None:
    """`a` with topic `b.c` and `a` with topic `b`: no dots in namespaces keeps them apart."""
    names = [
        declaration.name
        for topology in (Topology("a"), Topology("a-v1"), Topology("b"))
        for declaration in topology.plan(EVERY_HOP, ["t", "t.t", "hold.30m", "30m"])
        if isinstance(declaration, Queue)
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("namespace", ["", "a.b", "a b", "x" * 41, "ä"])
def test_a_bad_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidConfiguration, match="namespace"):
        Topology(namespace)


def test_a_bad_queue_type_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="queue type"):
        Topology("ns", "stream")  # type: ignore[arg-type]  # on purpose


def test_names_fit_in_a_short_string() -> None:
    topology = Topology("n" * 40)
    assert len(topology.buried_queue("t" * 200)) <= 255


def test_definitions_name_everything_that_is_declared() -> None:
    topology = Topology("ns")
    plan = topology.plan(EVERY_HOP, ["a"])
    exported = definitions(plan, vhost="/")
    assert sum(len(section) for section in exported.values()) == len(plan)
    assert json.loads(json.dumps(exported)) == exported
    assert all(entry["vhost"] == "/" for section in exported.values() for entry in section)
