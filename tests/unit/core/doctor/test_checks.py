"""The doctor's checks: every kind of result, from healthy facts with one change at a time."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.administration.counts import TopicCounts
from rabbitdelay.core.administration.policies import PolicedObject
from rabbitdelay.core.administration.verification import Finding
from rabbitdelay.core.doctor import facts
from rabbitdelay.core.doctor.broker_checks import DEAD_LETTER_LINE
from rabbitdelay.core.doctor.checks import judge
from rabbitdelay.core.doctor.facts import (
    BrokerSettings,
    Facts,
    NodeFacts,
    QueueFacts,
    Rights,
    Unknown,
)
from rabbitdelay.core.doctor.report import Check, worst
from rabbitdelay.core.topology.topology import Topology

NODES = ("a", "b", "c")
LOG = "rabbitdelay.tombstones"
HEALTHY = Facts(
    topology=Topology(),
    user="app",
    vhost="shop",
    longest_ttr_ms=60_000,
    version="4.3.6",
    management=None,
    feature_flags={"quorum_queue": "enabled", "stream_queue": "enabled"},
    settings=BrokerSettings(5_000, 1_800_000, 16_777_216),
    nodes=tuple(NodeFacts(name, is_running=True) for name in NODES),
    queues=(QueueFacts(LOG, NODES, NODES, "a"),),
    policed=(PolicedObject("queue", "q", "p", {"queue-leader-locator": "balanced"}),),
    clock_ahead_seconds=-0.4,
    rights=Rights(configure=True, write=True, read=True),
    is_blocked=False,
    takes_large_messages=True,
    declarations=(Finding("queue", "q", "ok"),),
    log_answers=True,
    topics=(TopicCounts("mail", 3, 1, 0, 2),),
    unrouted=0,
    stuck={},
)
NOT_SEEN = Unknown("cannot be seen from here")


def found(name: str, **changes: Any) -> list[Check]:  # noqa: ANN401 - any field of Facts
    """Return the results of one check, after a change to the healthy facts."""
    return [check for check in judge(replace(HEALTHY, **changes)) if check.name == name]


def node(**changes: Any) -> tuple[NodeFacts, ...]:  # noqa: ANN401 - any field of NodeFacts
    return (replace(NodeFacts("a", is_running=True), **changes), *HEALTHY.nodes[1:])  # type: ignore[index]


def policy(**definition: object) -> tuple[PolicedObject, ...]:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    return (PolicedObject("queue", "rabbitdelay.v1.ready.mail", "everything", keys),)


def test_a_healthy_broker_is_ok() -> None:
    checks = judge(HEALTHY)
    assert {check.status for check in checks} == {"ok"}
    assert len({check.name for check in checks}) == len(checks) == 18


CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("version", {"version": "3.9.29"}, "problem", "too old", "3.10"),
    ("version", {"version": "4.3.0"}, "warning", "declare=False", "patch release"),
    ("version", {"version": "3.10.0"}, "ok", "3.10.0", ""),
    (
        "feature flags",
        {"feature_flags": {"stream_queue": "disabled"}},
        "problem",
        "stream_queue must be enabled",
        "rabbitmqctl enable_feature_flag all",
    ),
    ("feature flags", {"feature_flags": {"x": "disabled"}}, "warning", "x", "enable_feature_flag"),
    (
        "dead-letter retry",
        {"settings": BrokerSettings(180_000, None, None)},
        "problem",
        "is 3m: hold queues may stall after a restart",
        DEAD_LETTER_LINE,
    ),
    (
        "dead-letter retry",
        {"settings": BrokerSettings(None, None, None)},
        "problem",
        "is not set",
        DEAD_LETTER_LINE,
    ),
    (
        "dead-letter retry",
        {"settings": BrokerSettings(100, None, None)},
        "warning",
        "twice",
        DEAD_LETTER_LINE,
    ),
    (
        "dead-letter retry",
        {"settings": NOT_SEEN},
        "unknown",
        "rabbitmqctl eval",
        DEAD_LETTER_LINE,
    ),
    (
        "dead-letter retry",
        {"settings": NOT_SEEN, "topology": Topology(queue_type="classic")},
        "ok",
        "classic",
        "",
    ),
    (
        "consumer timeout",
        {"longest_ttr_ms": 1_800_000},
        "problem",
        "30m, not longer than the longest ttr of 30m",
        "consumer_timeout = 3600000",
    ),
    (
        "consumer timeout",
        {"policed": policy(consumer_timeout=30_000), "settings": NOT_SEEN},
        "problem",
        "30s",
        "policy",
    ),
    ("consumer timeout", {"settings": BrokerSettings(5_000, None, None)}, "ok", "off", ""),
    ("consumer timeout", {"settings": NOT_SEEN}, "unknown", "enough", "consumer_timeout = 120000"),
    (
        "consumer timeout",
        {"settings": NOT_SEEN, "longest_ttr_ms": 3_600_000},
        "warning",
        "too short for a ttr of 1h",
        "consumer_timeout = 7200000",
    ),
    (
        "max message size",
        {"settings": BrokerSettings(5_000, None, 65_536)},
        "problem",
        "refused",
        "max_message_size",
    ),
    ("max message size", {"takes_large_messages": False}, "problem", "refused", "max_message"),
    ("max message size", {"settings": NOT_SEEN}, "ok", "was accepted", ""),
    (
        "max message size",
        {"settings": NOT_SEEN, "takes_large_messages": NOT_SEEN},
        "unknown",
        NOT_SEEN.reason,
        "",
    ),
    ("alarms", {"nodes": node(alarms=("disk",))}, "problem", "disk on a", "disk_free_limit"),
    ("alarms", {"nodes": NOT_SEEN, "is_blocked": True}, "problem", "puts wait", "memory"),
    ("alarms", {"nodes": NOT_SEEN, "is_blocked": NOT_SEEN}, "unknown", "from here", ""),
    ("nodes", {"nodes": HEALTHY.nodes[:1]}, "warning", "1 node", "three"),  # type: ignore[index]
    ("nodes", {"nodes": node(is_running=False)}, "problem", "a: not running", "start"),
    ("nodes", {"nodes": node(is_partitioned=True)}, "problem", "partition", "network"),
    (
        "queue members",
        {"queues": (QueueFacts("q", NODES, ("a",), "a"),)},
        "problem",
        "no majority: q",
        "start the nodes",
    ),
    (
        "queue members",
        {"queues": (QueueFacts("q", ("a",), ("a",), "a"),)},
        "warning",
        "fewer members than nodes: q",
        "grow",
    ),
    ("clock", {"clock_ahead_seconds": 12.0}, "warning", "12s ahead of the broker", "NTP"),
    ("clock", {"clock_ahead_seconds": -7200.0}, "problem", "2h behind the broker", "NTP"),
    (
        "permissions",
        {"rights": Rights(configure=False, write=False, read=True)},
        "problem",
        "app may not write",
        r"rabbitmqctl set_permissions --vhost shop app '^rabbitdelay\.' ",
    ),
    (
        "permissions",
        {"rights": Rights(configure=False, write=True, read=False)},
        "warning",
        "no configure and no read permission: it needs declare=False and it cannot consume",
        "set_permissions",
    ),
    (
        "permissions",
        {"rights": Rights(configure=True, write=None, read=True)},
        "unknown",
        "could not try: write",
        "",
    ),
    ("policies", {"policed": policy(message_ttl=60_000)}, "problem", "sets message-ttl", "narrow"),
    (
        "topology",
        {"declarations": (Finding("queue", "q", "ok"), Finding("queue", "r", "missing"))},
        "problem",
        "missing: r",
        "topology apply",
    ),
    (
        "topology",
        {
            "declarations": (
                Finding("queue", "q", "ok"),
                Finding("queue", "rabbitdelay.v1.hold.30m", "missing"),
                Finding("queue", "rabbitdelay.v1.ready.mail", "missing"),
                Finding(
                    "binding", "rabbitdelay.v1.ready → rabbitdelay.v1.ready.a [#.a]", "missing"
                ),
            )
        },
        "problem",
        "missing: rabbitdelay.v1.hold.30m",
        "topology apply --delay 30m --topic mail --topic a",
    ),
    (
        "topology",
        {"declarations": (Finding("queue", "q", "different"),)},
        "problem",
        "other arguments: q",
        "another namespace",
    ),
    (
        "topology",
        {"declarations": (Finding("queue", "q", "missing"),)},
        "warning",
        "namespace rabbitdelay does not exist",
        "topology apply --all",
    ),
    (
        "topology",
        {"declarations": (Finding("queue", "q", "ok"), Finding("binding", "b", "unchecked"))},
        "unknown",
        "1 of 2 not checked",
        "",
    ),
    (
        "delete log",
        {"queues": (QueueFacts(LOG, NODES, ("b", "c"), "a"),)},
        "problem",
        "no leader",
        "start the node a",
    ),
    ("delete log", {"log_answers": False}, "problem", "missing or does not answer", "apply"),
    ("unrouted jobs", {"unrouted": 2}, "problem", "2 jobs", "unrouted list"),
    ("buried jobs", {"topics": (TopicCounts("t", 0, 0, 1, 1),)}, "warning", "1 job", "buried"),
    ("consumers", {"topics": (TopicCounts("t", 0, 0, 0, 0),)}, "warning", "t", "start a worker"),
    (
        "consumers",
        {"topics": (TopicCounts("t", 5, 0, 0, 0),)},
        "problem",
        "t (5 ready)",
        "start a worker",
    ),
    (
        "dead-lettering",
        {"stuck": {"hold.8s": 18}},
        "problem",
        "18 jobs stuck on the way out of hold.8s",
        "rabbitmqctl set_policy",
    ),
]


@pytest.mark.parametrize(("name", "changes", "status", "reason", "fix"), CASES)
def test_each_kind_of_result(
    name: str, changes: dict[str, Any], status: str, reason: str, fix: str
) -> None:
    (check,) = found(name, **changes)
    assert check.status == status
    assert reason in check.reason
    assert fix in check.fix
    assert check.fix or check.status in ("ok", "unknown")


def test_every_harmful_key_of_a_policy_is_a_problem() -> None:
    checks = found("policies", policed=policy(message_ttl=1, max_length=2))
    assert [check.status for check in checks] == ["problem", "problem"]


CHECKS_OF = {
    "version": ("version",),
    "management": ("management API",),
    "feature_flags": ("feature flags",),
    "settings": ("dead-letter retry", "consumer timeout"),
    "nodes": ("nodes",),
    "queues": ("queue members",),
    "policed": ("policies",),
    "clock_ahead_seconds": ("clock",),
    "rights": ("permissions",),
    "log_answers": ("delete log",),
    "topics": ("buried jobs", "consumers"),
    "unrouted": ("unrouted jobs",),
    "stuck": ("dead-lettering",),
}
"""The checks that cannot be ok without a fact."""


@given(st.sets(st.sampled_from([field.name for field in fields(Facts)])))
def test_an_unknown_fact_is_never_ok(names: set[str]) -> None:
    hidden = {name: NOT_SEEN for name in names if name in CHECKS_OF}
    checks = judge(replace(HEALTHY, **hidden))  # type: ignore[arg-type]
    expected = {check for name in hidden for check in CHECKS_OF[name]}
    assert {check.name for check in checks if check.status == "unknown"} == expected
    assert all(check.reason for check in checks)


def test_the_worst_status_is_the_most_severe() -> None:
    statuses = ("ok", "unknown", "warning", "problem")
    for count in range(1, 5):
        checks = [Check("x", status, "") for status in statuses[:count]]  # type: ignore[arg-type]
        assert worst(checks) == statuses[count - 1]
    assert worst([]) == "ok"


# Reading the management API


def test_nodes_are_read_with_their_alarms() -> None:
    rows = [
        {"name": "a", "running": True, "mem_alarm": True, "disk_free_alarm": False},
        {"name": "b", "running": False},
        {"name": "c", "running": True, "partitions": ["a"]},
    ]
    assert facts.read_nodes(rows) == (
        NodeFacts("a", is_running=True, alarms=("memory",)),
        NodeFacts("b", is_running=False),
        NodeFacts("c", is_running=True, is_partitioned=True),
    )


def test_experimental_feature_flags_do_not_count() -> None:
    rows = [
        {"name": "a", "state": "disabled", "stability": "experimental"},
        {"name": "b", "state": "enabled", "stability": "stable"},
    ]
    assert facts.read_feature_flags(rows) == {"b": "enabled"}


def test_a_classic_queue_has_no_members() -> None:
    (queue,) = facts.read_queues([{"name": "q", "node": "a"}])
    assert queue == QueueFacts("q", (), (), "a")


def test_jobs_are_stuck_in_queues_that_did_not_shrink() -> None:
    first = {"stuck": 18, "grown": 5, "moving": 9, "gone": 1}
    second = {"stuck": 18, "grown": 6, "moving": 8, "new": 4}
    assert facts.read_stuck(first, second) == {"stuck": 18, "grown": 6}
