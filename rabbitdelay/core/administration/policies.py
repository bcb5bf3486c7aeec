"""Policies: operators' settings for queues and exchanges that would change how jobs are kept.

A policy overrides or tightens the arguments of a declaration. RabbitMQ takes the lower of the two
values for limits and times, so a policy that matches the namespace can expire jobs early or drop
them. The management API lists the policy of each queue (`effective_policy_definition`, in which
policy and operator policy are merged) and the name of each exchange's policy. AMQP shows neither.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

HARMFUL_KEYS: Mapping[str, str] = {
    "message-ttl": "jobs expire before they are due or before a consumer takes them",
    "expires": "the broker deletes an unused queue together with its jobs",
    "max-length": "the broker drops or refuses jobs beyond the limit",
    "max-length-bytes": "the broker drops or refuses jobs, or forgets deletes, beyond the limit",
    "max-age": "the log forgets deletes, and deleted jobs run",
    "delivery-limit": "the broker gives up on jobs after fewer redeliveries",
    "overflow": "the broker may drop jobs instead of refusing them",
    "dead-letter-exchange": "jobs leave a queue for another exchange than the next level",
    "dead-letter-routing-key": "jobs lose the routing key that carries their delay and topic",
    "dead-letter-strategy": "jobs can be lost between two queues",
    "alternate-exchange": "jobs without a route do not reach `unrouted`",
    "federation-upstream": "jobs are moved between brokers",
    "federation-upstream-set": "jobs are moved between brokers",
}
"""Policy keys that make jobs early, late or lost, each with its effect."""

_SHOWN_NAMES = 2


@dataclass(frozen=True, slots=True)
class PolicedObject:
    """A queue or an exchange that a policy applies to."""

    kind: Literal["queue", "exchange"]
    name: str
    policy: str
    """Name of the policy, or of both policies if an operator policy applies as well."""
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyProblem:
    """One key of one policy that must not apply to the namespace."""

    policy: str
    key: str
    values: tuple[Any, ...]
    names: tuple[str, ...]
    """The queues and exchanges that the policy applies to, sorted."""

    @property
    def detail(self) -> str:
        """Description of the setting, the objects it applies to, and its effect."""
        values = ", ".join(map(str, self.values))
        return f"sets {self.key} to {values} on {_some(self.names)}: {HARMFUL_KEYS[self.key]}"


def policed_queues(queues: Iterable[Mapping[str, Any]]) -> Iterator[PolicedObject]:
    """Yield the queues of a management API listing that a policy applies to."""
    for queue in queues:
        definition = queue.get("effective_policy_definition") or {}  # an empty one is a JSON list
        if definition:
            named = (queue.get("policy"), _operator(queue.get("operator_policy")))
            policy = " and ".join(name for name in named if name) or "(unnamed)"
            yield PolicedObject("queue", queue["name"], policy, definition)


def policed_exchanges(
    exchanges: Iterable[Mapping[str, Any]], policies: Iterable[Mapping[str, Any]]
) -> Iterator[PolicedObject]:
    """Yield the exchanges that a policy applies to; the API lists only its name for them."""
    definitions = {policy["name"]: policy.get("definition") or {} for policy in policies}
    for exchange in exchanges:
        name: str = exchange.get("policy") or ""
        if name in definitions:
            yield PolicedObject("exchange", exchange["name"], name, definitions[name])


def problems(objects: Iterable[PolicedObject]) -> list[PolicyProblem]:
    """Return the harmful keys of all policies, one entry per policy and key."""
    found: dict[tuple[str, str], list[tuple[str, Any]]] = defaultdict(list)
    for item in objects:
        for key in item.definition.keys() & HARMFUL_KEYS.keys():
            found[item.policy, key].append((item.name, item.definition[key]))
    return [_problem(policy, key, places) for (policy, key), places in sorted(found.items())]


def consumer_timeouts_ms(objects: Iterable[PolicedObject]) -> list[int]:
    """Return the values of `consumer-timeout` that policies set, in milliseconds."""
    values = (item.definition.get("consumer-timeout") for item in objects)
    return [value for value in values if isinstance(value, int)]


def _problem(policy: str, key: str, places: Sequence[tuple[str, Any]]) -> PolicyProblem:
    values = tuple(dict.fromkeys(value for _, value in places))
    return PolicyProblem(policy, key, values, tuple(sorted({name for name, _ in places})))


def _operator(name: str | None) -> str | None:
    return f"{name} (operator policy)" if name else None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    rest = len(names) - _SHOWN_NAMES
    return f"{shown} and {rest} more" if rest > 0 else shown
