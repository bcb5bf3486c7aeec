"""Namespaces: listing those of a broker, counting their jobs, and removing one."""

import difflib
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rabbitdelay.core.topology.objects import Exchange, Queue
from rabbitdelay.core.topology.setup import Answers, Inspect, Remove, Round
from rabbitdelay.core.topology.topology import VERSION, Topology
from rabbitdelay.errors import NamespaceInUse

_OF_NAMESPACE = re.compile(rf"(?P<namespace>[A-Za-z0-9_-]{{1,40}})\.v{VERSION}\.(?P<rest>.+)")
Row = Mapping[str, Any]
"""A queue or an exchange, as listed by the management API."""


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Number of jobs of a namespace, by state."""

    delayed: int = 0
    ready: int = 0
    reserved: int = 0
    buried: int = 0
    unrouted: int = 0
    dead_lettering: int = 0
    """Number of jobs that the broker is moving from one queue to the next."""

    @property
    def total(self) -> int:
        """Number of all jobs."""
        return sum(count for _, count in self)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for name in self.__slots__:
            yield name, getattr(self, name)

    def __str__(self) -> str:
        words = (f"{count:,} {name.replace('_', '-')}" for name, count in self if count)
        return ", ".join(words) or "no jobs"


@dataclass(frozen=True, slots=True)
class NamespaceCounts:
    """A namespace with the numbers of its topics, jobs and consumers."""

    namespace: str
    topics: int
    jobs: JobCounts
    consumers: int
    """Number of consumers of its ready queues."""


def listed(queues: Iterable[Row]) -> list[NamespaceCounts]:
    """Return the namespaces that these queues belong to, sorted by name.

    A namespace is recognised by its queue `unrouted`, which is declared before all others.
    """
    found: dict[str, list[tuple[str, Row]]] = {}
    for row in queues:
        if match := _OF_NAMESPACE.fullmatch(row["name"]):
            found.setdefault(match["namespace"], []).append((match["rest"], row))
    there = {name: rows for name, rows in found.items() if "unrouted" in dict(rows)}
    return [_counted(name, rows) for name, rows in sorted(there.items())]


def near(namespace: str, others: Iterable[str]) -> list[str]:
    """Return the names that this one may be a misspelling of, the closest first."""
    by_fold = {other.casefold(): other for other in others}
    close = difflib.get_close_matches(namespace.casefold(), by_fold, n=3)
    return [by_fold[name] for name in close]


def missing_text(topology: Topology, others: Sequence[str] | None) -> str:
    """Return the error text for a namespace that does not exist, with similar names.

    `others` are the namespaces of the broker; None if they cannot be listed.
    """
    text = f"there is no namespace {topology.namespace} on this broker"
    if others is None:
        return f"{text}: check --namespace"
    if close := near(topology.namespace, others):
        return f"{text}: did you mean {' or '.join(close)}?"
    if others:
        return f"{text}: `rabbitdelay namespaces` lists those that exist"
    return f"{text}, which has none yet: a namespace is created by its first put"


def exists(topology: Topology) -> Generator[Round, Answers, bool]:
    """Return whether a namespace exists, judging by the exchange that is declared first."""
    (found,) = yield (Inspect(Exchange(topology.unrouted, "fanout")),)
    return found is not None


# Removing


@dataclass(frozen=True, slots=True)
class Removal:
    """The objects that removing a namespace deletes, in order: all queues, then the exchanges.

    `unrouted` is the last queue, because a job that is put in the meantime ends there.
    """

    namespace: str
    queues: tuple[Queue, ...]
    exchanges: tuple[Exchange, ...]
    jobs: JobCounts = JobCounts()
    """Jobs in the namespace. Those that are reserved or between two queues were counted some
    seconds ago."""
    consumers: int = 0
    """Number of consumers of ready queues."""

    def check(self) -> None:
        """Refuse to remove a namespace that is in use.

        Raises:
            NamespaceInUse: The namespace has jobs or consumers.
        """
        if not self.jobs.total and not self.consumers:
            return
        plural = "" if self.consumers == 1 else "s"
        consumers = f", {self.consumers:,} consumer{plural}" if self.consumers else ""
        raise NamespaceInUse(
            f"namespace {self.namespace} is in use: {self.jobs}{consumers}; nothing was removed. "
            "Wait until its jobs have run (purged ones stay delayed until they are due), stop its "
            "consumers and try again, or remove it with its jobs (--force; in Python force=True)"
        )


def removal(topology: Topology, queues: Iterable[Row], exchanges: Iterable[Row]) -> Removal:
    """Return the removal, given the queues and exchanges that the management API lists.

    Its jobs do not include those in queues, which `count_jobs` adds.
    """
    own = [row for row in queues if _is_own(topology, row["name"])]
    counted = _counted(topology.namespace, [(_rest(topology, row), row) for row in own])
    names = sorted((row["name"] for row in own), key=lambda name: (name == topology.unrouted, name))
    return Removal(
        topology.namespace,
        tuple(map(Queue, names)),
        tuple(
            Exchange(row["name"], row["type"])
            for row in sorted(exchanges, key=lambda row: row["name"] == topology.unrouted)
            if _is_own(topology, row["name"])
        ),
        JobCounts(reserved=counted.jobs.reserved, dead_lettering=counted.jobs.dead_lettering),
        counted.consumers,
    )


def count_jobs(topology: Topology, plan: Removal) -> Generator[Round, Answers, Removal]:
    """Return the plan with the jobs in its queues, as they are at this moment."""
    kinds = [(queue, _kind(queue.name.removeprefix(topology.prefix))) for queue in plan.queues]
    counted = [(queue, kind) for queue, kind in kinds if kind is not None]
    answers = yield tuple(Inspect(queue) for queue, _ in counted)
    counts: Counter[str] = Counter(dict(plan.jobs))
    for (_, kind), count in zip(counted, answers, strict=True):
        counts[kind] += count or 0
    return replace(plan, jobs=JobCounts(**counts))


def remove(
    topology: Topology, plan: Removal, *, with_jobs: bool
) -> Generator[Round, Answers, None]:
    """Remove a namespace.

    Without `with_jobs`, count the jobs of each queue right before its deletion.

    Raises:
        NamespaceInUse: Jobs were put in the meantime. The text says how far the removal got.
    """
    for number, queue in enumerate(plan.queues):
        is_counted = _kind(queue.name.removeprefix(topology.prefix)) is not None
        if not with_jobs and is_counted and (jobs := (yield (Inspect(queue),))[0]):
            raise NamespaceInUse(
                f"{jobs:,} jobs arrived in {queue.name} while namespace {plan.namespace} was being "
                f"removed; {number} of {len(plan.queues)} queues are gone. To keep the namespace, "
                "run `rabbitdelay topology apply` and `rabbitdelay unrouted retry`; to remove it, "
                "stop the programs that put jobs and try again"
            )
        yield (Remove(queue),)
    for exchange in plan.exchanges:
        yield (Remove(exchange),)


def _is_own(topology: Topology, name: str) -> bool:
    """Whether a queue or an exchange belongs to the namespace, not to another application."""
    return name.startswith(topology.prefix) or name in (topology.tombstones, topology.snapshots)


def _rest(topology: Topology, row: Row) -> str:
    name: str = row["name"]
    return name.removeprefix(topology.prefix)


def _kind(rest: str) -> str | None:
    """Return the state of the jobs in a queue, by its name without the prefix.

    None for other queues.
    """
    kinds = {"hold": "delayed", "ready": "ready", "buried": "buried", "unrouted": "unrouted"}
    return kinds.get(rest.partition(".")[0])


def _counted(namespace: str, queues: Iterable[tuple[str, Row]]) -> NamespaceCounts:
    counts: Counter[str] = Counter()
    topics: set[str] = set()
    consumers = 0
    for rest, row in queues:
        kind = _kind(rest)
        if kind is None:
            continue
        counts[kind] += row.get("messages_ready") or 0
        counts["reserved"] += row.get("messages_unacknowledged") or 0
        counts["dead_lettering"] += row.get("messages_dlx") or 0
        if kind in ("ready", "buried"):
            topics.add(rest.partition(".")[2])
            consumers += row.get("consumers") or 0
    return NamespaceCounts(namespace, len(topics), JobCounts(**counts), consumers)
