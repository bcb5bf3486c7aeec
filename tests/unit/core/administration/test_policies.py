"""Policies: every key that makes jobs early, late or lost is reported, and no other."""

from typing import Any

import pytest

from rabbitdelay.core.administration import policies
from rabbitdelay.core.administration.definitions import definitions
from rabbitdelay.core.administration.verification import Finding, compare
from rabbitdelay.core.topology.topology import Topology

EXPECTED = definitions(Topology().plan((), ["mail"]), vhost="/")
QUEUE = "rabbitdelay.v1.ready.mail"
EXCHANGE = "rabbitdelay.v1.level.s"
HARMFUL: dict[str, Any] = {
    "message-ttl": 1000,
    "expires": 60_000,
    "max-length": 10,
    "max-length-bytes": 1000,
    "max-age": "1h",
    "delivery-limit": 1,
    "overflow": "drop-head",
    "dead-letter-exchange": "elsewhere",
    "dead-letter-routing-key": "elsewhere",
    "dead-letter-strategy": "at-most-once",
    "alternate-exchange": "elsewhere",
    "federation-upstream": "other",
    "federation-upstream-set": "all",
}


def broker(
    queue: dict[str, Any] | None = None,
    exchange: dict[str, Any] | None = None,
    named: list[dict[str, Any]] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Return a broker's definitions, with additional fields for one queue and one exchange."""
    more = {QUEUE: queue or {}, EXCHANGE: exchange or {}}
    sections = {
        section: [entry | more.get(entry.get("name", ""), {}) for entry in entries]
        for section, entries in EXPECTED.items()
    }
    return sections | {"policies": named or []}


def reported(found: dict[str, list[dict[str, Any]]]) -> list[Finding]:
    return [finding for finding in compare(EXPECTED, found) if finding.kind == "policy"]


def test_every_harmful_key_is_covered_by_this_file() -> None:
    assert policies.HARMFUL_KEYS.keys() == HARMFUL.keys()


@pytest.mark.parametrize(("key", "value"), HARMFUL.items())
def test_a_harmful_key_on_a_queue_is_a_problem(key: str, value: object) -> None:
    queue = {"policy": "all", "effective_policy_definition": {key: value}}
    (finding,) = reported(broker(queue))
    assert finding.is_problem
    assert finding.name == "all"
    assert f"sets {key} to {value} on {QUEUE}: " in finding.detail


@pytest.mark.parametrize(("key", "value"), HARMFUL.items())
def test_a_harmful_key_on_an_exchange_is_a_problem(key: str, value: object) -> None:
    named = [{"name": "all", "definition": {key: value}}]
    (finding,) = reported(broker(exchange={"policy": "all"}, named=named))
    assert finding.is_problem
    assert f"sets {key} to {value} on {EXCHANGE}: " in finding.detail


def test_an_operator_policy_is_named_as_one() -> None:
    queue = {"operator_policy": "limits", "effective_policy_definition": {"max-length": 5}}
    assert [finding.name for finding in reported(broker(queue))] == ["limits (operator policy)"]


@pytest.mark.parametrize("definition", [[], {}, None, {"queue-leader-locator": "balanced"}])
def test_no_policy_and_a_harmless_policy_are_not_reported(definition: object) -> None:
    queue = {"policy": "all", "effective_policy_definition": definition}
    assert reported(broker(queue)) == []


def test_a_policy_that_matches_no_object_is_not_reported() -> None:
    assert reported(broker(named=[{"name": "other", "definition": {"max-length": 1}}])) == []


def test_one_finding_names_all_the_queues_of_a_policy() -> None:
    queues = [
        {"name": f"queue-{number}", "policy": "p", "effective_policy_definition": {"expires": 9}}
        for number in range(208)
    ]
    (problem,) = policies.problems(policies.policed_queues(queues))
    assert len(problem.names) == 208
    assert "queue-0, queue-1 and 206 more" in problem.detail


def test_the_consumer_timeouts_of_policies_are_found() -> None:
    queue = {"name": "q", "policy": "p", "effective_policy_definition": {"consumer-timeout": 9}}
    assert policies.consumer_timeouts_ms(policies.policed_queues([queue])) == [9]
