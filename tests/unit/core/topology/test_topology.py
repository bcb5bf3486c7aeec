"""The topology as data: names and arguments."""

import json

import pytest

from rabbitdelay.core.administration.definitions import definitions
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Binding, Exchange, Queue
from rabbitdelay.core.topology.topology import QueueType, Topology
from rabbitdelay.errors import InvalidConfiguration

EVERY_HOP = [
    ladder.Hop(level, digit)
    for level in ladder.LEVELS
    for digit in range(1, level.highest_digit + 1)
]


def test_every_exchange_except_unrouted_has_an_alternate_exchange() -> None:
    topology = Topology("ns")
    exchanges = [d for d in topology.plan(EVERY_HOP, ["a"]) if isinstance(d, Exchange)]
    without = {e.name for e in exchanges if "alternate-exchange" not in e.arguments}
    of_deletes = {part.queue.name for part in topology.deletion()}
    assert (
        without
        == {topology.unrouted, topology.stabilising, topology.responses_exchange} | of_deletes
    )


def test_no_queue_of_jobs_can_drop_a_job() -> None:
    """No length limit, no expiry of the queue, and dead-lettering with confirms."""
    topology = Topology("ns")
    queues = [d for d in topology.plan(EVERY_HOP, ["a"]) if isinstance(d, Queue)]
    of_deletes = [part.queue for part in topology.deletion()]
    for queue in queues:
        if queue in of_deletes:
            continue
        assert queue.arguments["x-queue-type"] == "quorum"
        assert not queue.arguments.keys() & {"x-max-length", "x-max-length-bytes", "x-expires"}
        if "x-dead-letter-exchange" in queue.arguments:
            assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_queues_of_responses_are_bounded(queue_type: QueueType) -> None:
    """They may never be read. The oldest response is dropped, and never a job."""
    topology = Topology("ns", queue_type)
    kept, asked = topology.responses("a.b"), topology.replies("client-1")
    for part, name in ((kept, "ns.v1.responses.a.b"), (asked, "ns.v1.replies.client-1")):
        assert part.queue.name == name
        assert part.ways == (Binding("ns.v1.responses", name, "queue", name),)
        arguments = part.queue.arguments
        assert arguments["x-queue-type"] == queue_type
        assert (arguments["x-message-ttl"], arguments["x-max-length"]) == (86_400_000, 100_000)
        assert arguments["x-overflow"] == "drop-head"
        assert "x-dead-letter-exchange" not in arguments


def test_only_a_client_s_reply_queue_expires() -> None:
    topology = Topology("ns")
    assert "x-expires" not in topology.responses("a").queue.arguments
    assert topology.replies("c").queue.arguments["x-expires"] == 3_600_000


def test_queues_that_are_only_read_have_no_delivery_limit() -> None:
    """By default, RabbitMQ 4 drops a message after 20 deliveries."""
    topology = Topology("ns")
    looked_into = [*topology.plan(topics=["a"]), topology.responses("a").queue]
    looked_into += [topology.replies("c").queue]
    limits = {
        item.name: item.arguments["x-delivery-limit"]
        for item in looked_into
        if isinstance(item, Queue) and item.arguments["x-queue-type"] != "stream"
    }
    assert limits.pop("ns.v1.ready.a") == 20
    assert set(limits.values()) == {2_000_000_000}


def test_names_of_namespaces_topics_and_kinds_never_collide() -> None:
    """Possible because namespaces contain no dots."""
    names = [
        declaration.name
        for topology in (Topology("a"), Topology("a-v1"), Topology("b"))
        for declaration in (
            *topology.plan(EVERY_HOP, ["t", "t.t", "hold.30m", "30m"]),
            *(topology.responses(topic).queue for topic in ("t", "t.t")),
            topology.replies("t").queue,
        )
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


def test_names_fit_into_a_short_string() -> None:
    topology = Topology("n" * 40)
    assert len(topology.buried_queue("t" * 200)) <= 255
    assert len(topology.responses_queue("t" * 200)) <= 255


def test_definitions_contain_every_declaration() -> None:
    topology = Topology("ns")
    plan = topology.plan(EVERY_HOP, ["a"])
    exported = definitions(plan, vhost="/")
    assert sum(len(section) for section in exported.values()) == len(plan)
    assert json.loads(json.dumps(exported)) == exported
    assert all(entry["vhost"] == "/" for section in exported.values() for entry in section)
