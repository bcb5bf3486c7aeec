"""Verification: comparing definitions, and a conversation that creates nothing."""

from copy import deepcopy

import pytest

from rabbitdelay.core.administration.definitions import definitions
from rabbitdelay.core.administration.verification import Finding, ask, compare, existing
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Binding
from rabbitdelay.core.topology.setup import Declare, Inspect
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import PermissionRefused, TopologyConflict

TOPOLOGY = Topology()
PLAN = TOPOLOGY.plan(ladder.hops(ladder.to_digits(60_000)), ["mail"])
EXPECTED = definitions(PLAN, vhost="/")


def problems(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.is_problem]


def test_matching_definitions_are_not_a_problem() -> None:
    findings = compare(EXPECTED, EXPECTED)
    assert len(findings) == len(PLAN)
    assert problems(findings) == []


def test_missing_objects_are_reported() -> None:
    found = deepcopy(EXPECTED)
    removed = {section: items.pop() for section, items in found.items()}
    assert {finding.kind for finding in problems(compare(EXPECTED, found))} == {
        "exchange",
        "queue",
        "binding",
    }
    assert Finding("queue", removed["queues"]["name"], "missing") in compare(EXPECTED, found)


def test_differences_are_reported_with_both_values() -> None:
    found = deepcopy(EXPECTED)
    (queue,) = [queue for queue in found["queues"] if queue["name"].endswith("hold.1m")]
    queue["arguments"]["x-message-ttl"] = 61_000
    queue["arguments"]["x-max-length"] = 5
    queue["durable"] = False
    (finding,) = problems(compare(EXPECTED, found))
    assert finding.detail == (
        "durable is False, should be True; x-max-length is 5, should be not set; "
        "x-message-ttl is 61000, should be 60000"
    )


def test_objects_of_other_applications_are_not_a_problem() -> None:
    found = deepcopy(EXPECTED)
    found["queues"].append({**found["queues"][0], "name": "not-ours"})
    assert problems(compare(EXPECTED, found)) == []


def test_hops_and_topics_are_derived_from_existing_queues() -> None:
    queues = ["hold.1m", "ready.a.b", "buried.mail", "unrouted", "settling", "hold.never"]
    hops, topics = existing(TOPOLOGY, [f"{TOPOLOGY.prefix}{name}" for name in queues])
    assert [hop.label for hop in hops] == ["1m"]
    assert topics == ["a.b", "mail"]


def test_over_amqp_only_existing_objects_are_declared_again() -> None:
    missing, different, refused, *fine = TOPOLOGY.base()[3:9]
    conversation = ask([missing, different, refused, *fine])
    declared = []
    (command,) = next(conversation)
    try:
        while True:
            if isinstance(command, Inspect):
                answer = None if command.declaration == missing else 0
                (command,) = conversation.send((answer,))
                continue
            assert isinstance(command, Declare)
            declared.append(command.declaration)
            if command.declaration == different:
                (command,) = conversation.throw(TopologyConflict("406"))
            elif command.declaration == refused:
                (command,) = conversation.throw(PermissionRefused("403"))
            else:
                (command,) = conversation.send((None,))
    except StopIteration as stop:
        findings = stop.value
    assert missing not in declared
    states = [finding.state for finding in findings]
    assert states == ["missing", "different", "unchecked", *["ok"] * len(fine), "unchecked"]
    assert findings[-1].kind == "policy"


def test_over_amqp_bindings_are_not_checked() -> None:
    """AMQP has no way to ask for a binding that would not create it."""
    binding = next(one for one in TOPOLOGY.base() if isinstance(one, Binding))
    with pytest.raises(StopIteration) as stop:
        next(ask([binding]))
    found, _ = stop.value.value
    assert (found.kind, found.state, found.detail) == (
        "binding",
        "unchecked",
        "needs the management API",
    )
    assert binding.destination in found.name
