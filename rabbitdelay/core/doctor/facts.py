"""Facts about a broker, from which the checks draw their conclusions.

A fact that could not be read is an `Unknown` with the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rabbitdelay.core.administration.counts import TopicCounts
from rabbitdelay.core.administration.policies import PolicedObject
from rabbitdelay.core.administration.verification import Finding
from rabbitdelay.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read."""

    reason: str


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings that only the node itself can report; None if a setting is off."""

    dead_letter_retry_ms: int | None
    consumer_timeout_ms: int | None
    max_message_bytes: int | None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node of the cluster."""

    name: str
    is_running: bool
    alarms: tuple[str, ...] = ()
    """`memory` and `disk`, if such an alarm is active."""
    is_partitioned: bool = False


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The replicas of one quorum queue or stream."""

    name: str
    members: tuple[str, ...]
    online: tuple[str, ...]
    leader: str | None
    """The leader's node; None if the broker did not report it."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The user's permissions in the namespace; None for a permission that could not be tested."""

    configure: bool | None
    write: bool | None
    read: bool | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was read from a broker."""

    topology: Topology
    user: str
    vhost: str
    longest_ttr_ms: int
    version: str | Unknown
    management: Unknown | None
    """None if the management API answers."""
    feature_flags: Mapping[str, str] | Unknown
    """State of each flag that is not experimental: `enabled` or `disabled`."""
    settings: BrokerSettings | Unknown
    nodes: tuple[NodeFacts, ...] | Unknown
    queues: tuple[QueueFacts, ...] | Unknown
    policed: tuple[PolicedObject, ...] | Unknown
    clock_ahead_seconds: float | Unknown
    """Time by which this machine's clock is ahead of the broker's, in seconds."""
    rights: Rights | Unknown
    is_blocked: bool | Unknown
    """Whether the broker has blocked a publisher."""
    takes_large_messages: bool | Unknown
    declarations: tuple[Finding, ...]
    log_answers: bool | Unknown
    """Whether the log of deletes accepted a consumer."""
    topics: tuple[TopicCounts, ...] | Unknown
    unrouted: int | Unknown
    stuck: Mapping[str, int] | Unknown
    """Number of jobs that did not move between two readings, by the queue that they are leaving."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the namespace exists."""
        return is_empty(self.declarations)


def is_empty(declarations: Iterable[Finding]) -> bool:
    """Whether every object that could be checked is missing."""
    states = {found.state for found in declarations if found.kind != "policy"}
    return "missing" in states and states <= {"missing", "unchecked"}


# Reading responses of the management API


def read_nodes(rows: Iterable[Mapping[str, Any]]) -> tuple[NodeFacts, ...]:
    """Read the nodes from `/api/nodes`."""
    alarms = {"mem_alarm": "memory", "disk_free_alarm": "disk"}
    return tuple(
        NodeFacts(
            row["name"],
            bool(row.get("running")),
            tuple(text for key, text in alarms.items() if row.get(key)),
            bool(row.get("partitions")),
        )
        for row in rows
    )


def read_queues(rows: Iterable[Mapping[str, Any]]) -> tuple[QueueFacts, ...]:
    """Read the replicas of queues from `/api/queues`."""
    return tuple(
        QueueFacts(
            row["name"],
            tuple(row.get("members") or ()),
            tuple(row.get("online") or ()),
            row.get("node"),
        )
        for row in rows
    )


def read_feature_flags(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Read the state of each flag that is not experimental from `/api/feature-flags`."""
    stable = (row for row in rows if row.get("stability") != "experimental")
    return {row["name"]: row["state"] for row in stable}


def read_stuck(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Return the second counts of jobs that leave a queue, where they have not fallen."""
    return {name: count for name, count in second.items() if 0 < first.get(name, 0) <= count}
