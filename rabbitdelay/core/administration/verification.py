"""Verification: comparing the expected topology with what a broker has.

There are two ways, with findings of the same form:

    compare    with what the management API lists: arguments, types, bindings and policies
    ask        over AMQP, as a conversation, which cannot see bindings and policies
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rabbitdelay.core.administration import policies
from rabbitdelay.core.administration.definitions import Definitions, definitions
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Binding, Declaration, Exchange
from rabbitdelay.core.topology.setup import Answers, Declare, Inspect, Round
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import PermissionRefused, TopologyConflict

State = Literal["ok", "missing", "different", "unchecked"]
Kind = Literal["exchange", "queue", "binding", "policy"]

_KINDS: dict[str, Kind] = {"exchanges": "exchange", "queues": "queue", "bindings": "binding"}
_HOPS_BY_LABEL = {hop.label: hop for hop in ladder.EVERY_HOP}


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one exchange, queue, binding or policy."""

    kind: Kind
    name: str
    state: State
    detail: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether the finding may stop jobs from flowing."""
        return self.state in ("missing", "different")


def compare(expected: Definitions, found: Definitions) -> list[Finding]:
    """Compare definitions with those of the broker, including policies that change jobs."""
    findings = [
        finding
        for section, kind in _KINDS.items()
        for finding in _compare_section(kind, expected[section], found[section])
    ]
    return findings + policy_findings(policed(found))


def policed(found: Definitions) -> list[policies.PolicedObject]:
    """Return every queue and exchange of the broker's definitions that a policy applies to."""
    exchanges = policies.policed_exchanges(found["exchanges"], found.get("policies", ()))
    return [*policies.policed_queues(found["queues"]), *exchanges]


def policy_findings(objects: Iterable[policies.PolicedObject]) -> list[Finding]:
    """Return a problem for each policy key that makes jobs early, late or lost."""
    return [
        Finding("policy", problem.policy, "different", problem.detail)
        for problem in policies.problems(objects)
    ]


def ask(declarations: Iterable[Declaration]) -> Generator[Round, Answers, list[Finding]]:
    """Check over AMQP without creating anything: only existing objects are declared again."""
    findings: list[Finding] = []
    for declaration in declarations:
        finding = yield from _ask_one(declaration)
        findings.append(finding)
    return [*findings, Finding("policy", "all", "unchecked", "needs the management API")]


def existing(topology: Topology, queues: Iterable[str]) -> tuple[list[ladder.Hop], list[str]]:
    """Return the hops and the topics that these queues belong to."""
    names = sorted(queues)
    hops = [_HOPS_BY_LABEL.get(label) for label in _rest(names, f"{topology.prefix}hold.")]
    ready = _rest(names, f"{topology.ready_exchange}.")
    buried = _rest(names, f"{topology.buried_exchange}.")
    return [hop for hop in hops if hop is not None], sorted({*ready, *buried})


def _compare_section(
    kind: Kind, expected: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> Iterable[Finding]:
    by_name = {_identity(entry): entry for entry in found}
    for entry in expected:
        actual = by_name.get(_identity(entry))
        if actual is None:
            yield Finding(kind, _name(entry), "missing")
        elif differences := list(_differences(entry, actual)):
            yield Finding(kind, _name(entry), "different", "; ".join(differences))
        else:
            yield Finding(kind, _name(entry), "ok")


def _identity(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    if "name" in entry:
        return (entry["name"],)
    fields = ("source", "destination", "destination_type", "routing_key")
    return tuple(entry[field] for field in fields)


def _name(entry: Mapping[str, Any]) -> str:
    if "name" in entry:
        return str(entry["name"])
    return f"{entry['source']} → {entry['destination']} [{entry['routing_key']}]"


def destination(name: str) -> str:
    """Return where the binding of this name leads; any other name unchanged."""
    return name.rpartition(" → ")[2].partition(" [")[0]


def _differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterable[str]:
    for field, wanted in expected.items():
        if isinstance(wanted, Mapping):
            yield from _differences_of_arguments(wanted, actual.get(field) or {})
        elif actual.get(field) != wanted:
            yield f"{field} is {actual.get(field)}, should be {wanted}"


def _differences_of_arguments(
    expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> Iterable[str]:
    for name in sorted({*expected, *actual}):
        if actual.get(name) != expected.get(name):
            yield f"{name} is {actual.get(name, 'not set')}, should be " + str(
                expected.get(name, "not set")
            )


def _ask_one(declaration: Declaration) -> Generator[Round, Answers, Finding]:
    if isinstance(declaration, Binding):
        name = _name(definitions([declaration], vhost="")["bindings"][0])
        return Finding("binding", name, "unchecked", "needs the management API")
    kind: Kind = "exchange" if isinstance(declaration, Exchange) else "queue"
    try:
        if (yield (Inspect(declaration),)) == (None,):
            return Finding(kind, declaration.name, "missing")
        yield (Declare(declaration),)
    except TopologyConflict as conflict:
        return Finding(kind, declaration.name, "different", str(conflict))
    except PermissionRefused:
        return Finding(kind, declaration.name, "unchecked", "this user may not declare it")
    return Finding(kind, declaration.name, "ok")


def _rest(names: Iterable[str], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
