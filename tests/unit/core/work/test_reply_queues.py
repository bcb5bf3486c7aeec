"""The queues to which responses may be published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.errors import InvalidConfiguration

TOPOLOGY = Topology("ns")
NAMES = st.text(min_size=1, max_size=40)


@pytest.mark.parametrize("queue", ["ns.v1.replies.0a1b", "ns.v1.responses.orders"])
def test_the_namespaces_queues_for_responses_are_allowed(queue: str) -> None:
    assert ReplyQueues.of(TOPOLOGY).allows(queue)


@pytest.mark.parametrize(
    "queue",
    [
        "ns.tombstones",
        "ns.snapshots",
        "ns.v1.ready.orders",
        "ns.v1.buried.orders",
        "ns.v1.unrouted",
    ],
)
def test_no_other_queue_of_the_namespace_can_be_allowed(queue: str) -> None:
    assert not ReplyQueues.of(TOPOLOGY).allows(queue)
    assert not ReplyQueues.of(TOPOLOGY, ["*"]).allows(queue)
    assert not ReplyQueues.of(TOPOLOGY, ["n*"]).allows(queue)


@pytest.mark.parametrize(
    "queue", ["answers", "ns", "ns2.v1.replies.x", "", "amq.rabbitmq.reply-to"]
)
def test_queues_of_other_programs_are_refused_by_default(queue: str) -> None:
    assert not ReplyQueues.of(TOPOLOGY).allows(queue)


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("orders.replies", "orders.replies", "orders.replies.2"),
        ("orders.replies", "orders.replies", "ordersXreplies"),
        ("myapp.*", "myapp.replies.7", "myapp"),
        ("*.replies", "a.b.replies", "a.replies.b"),
        ("a*c", "a\nc", "ab"),
        ("q[1]?", "q[1]?", "q1"),
        ("*", "anything", "ns.tombstones"),
    ],
)
def test_a_pattern_allows_what_it_matches_as_a_whole(
    pattern: str, allowed: str, refused: str
) -> None:
    queues = ReplyQueues.of(TOPOLOGY, ["other", pattern])
    assert queues.allows(allowed)
    assert queues.allows("other")
    assert not queues.allows(refused)


@given(NAMES.filter(lambda name: not name.startswith("ns.") and "*" not in name), NAMES)
def test_a_name_allows_only_itself(name: str, other: str) -> None:
    queues = ReplyQueues.of(TOPOLOGY, [name])
    assert queues.allows(name)
    assert queues.allows(other) == (other == name or other.startswith(queues.own))


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    assert not ReplyQueues.of(TOPOLOGY, ["*"]).allows("\ud800")


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        ("myapp.*", "must be a list of queue names"),
        ([""], "'' is not a name"),
        ([7], "7 is not a name"),
        (["\ud800"], "is not a name"),
        (["ns.tombstones"], "names that begin with 'ns.' are reserved"),
        (["ns.*"], "always allowed"),
    ],
)
def test_an_invalid_list_is_refused(patterns: list[str], says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        ReplyQueues.of(TOPOLOGY, patterns)
