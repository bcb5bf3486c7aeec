"""Delayed jobs on plain RabbitMQ: no plugin, no scheduler process, no second database."""

from rabbitdelay.core.administration.counts import HoldCount, Statistics, TopicCounts
from rabbitdelay.core.administration.namespaces import JobCounts, NamespaceCounts, Removal
from rabbitdelay.core.administration.verification import Finding
from rabbitdelay.core.doctor.report import Check
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.parked.parked_job import SentJobs
from rabbitdelay.core.parked.unrouted import UnroutedJob
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.outcome import Outcome
from rabbitdelay.core.work.responses import Response
from rabbitdelay.core.work.retry import RetryPolicy
from rabbitdelay.core.work.stats import WorkerCounts
from rabbitdelay.engine.administration.administration import Applied, Verification
from rabbitdelay.engine.deletes.known_deletes import TombstoneStats
from rabbitdelay.engine.transport_source import TransportSource
from rabbitdelay.engine.work.base_worker import WorkerStats
from rabbitdelay.errors import (
    ActionFailed,
    BrokerBlocked,
    BrokerProcessError,
    BrokerUnreachable,
    Bury,
    CertificateRefused,
    ClientClosed,
    ConnectionFailed,
    CutOff,
    DeleteManyFailed,
    HandlerDied,
    HandlerRaised,
    HandlerVerdict,
    InvalidConfiguration,
    InvalidJob,
    JobRefused,
    LeaseLost,
    LoginRefused,
    ManagementUnreachable,
    NamespaceInUse,
    NamespaceMissing,
    NoResponse,
    NotAJob,
    OutcomeUnknown,
    PermissionRefused,
    PutManyFailed,
    QueueUnavailable,
    RabbitDelayError,
    Retry,
    TimedOut,
    TopologyConflict,
    TopologyError,
    TopologyMissing,
    VhostRefused,
    WorkerFailed,
)
from rabbitdelay.executors.reserved_job import ReservedJob
from rabbitdelay.models import Job, JobOptions, JobSpec, PutOptions
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.parked_jobs import BuriedJobs, UnroutedJobs
from rabbitdelay.sync.topology import ClientTopology
from rabbitdelay.sync.worker import Worker

__all__ = [
    "ActionFailed",
    "Applied",
    "BrokerBlocked",
    "BrokerProcessError",
    "BrokerUnreachable",
    "BuriedJob",
    "BuriedJobs",
    "Bury",
    "CertificateRefused",
    "Check",
    "Client",
    "ClientClosed",
    "ClientTopology",
    "ConnectionFailed",
    "CutOff",
    "DeleteManyFailed",
    "Finding",
    "HandlerDied",
    "HandlerRaised",
    "HandlerVerdict",
    "HoldCount",
    "InvalidConfiguration",
    "InvalidJob",
    "Job",
    "JobCounts",
    "JobOptions",
    "JobRefused",
    "JobSpec",
    "LeaseLost",
    "LoginRefused",
    "ManagementUnreachable",
    "NamespaceCounts",
    "NamespaceInUse",
    "NamespaceMissing",
    "NoResponse",
    "NotAJob",
    "Outcome",
    "OutcomeUnknown",
    "PermissionRefused",
    "PutManyFailed",
    "PutOptions",
    "QueueUnavailable",
    "RabbitDelayError",
    "Removal",
    "ReservedJob",
    "Response",
    "Retry",
    "RetryPolicy",
    "SentJobs",
    "Statistics",
    "TimedOut",
    "TombstoneStats",
    "TopicCounts",
    "Topology",
    "TopologyConflict",
    "TopologyError",
    "TopologyMissing",
    "TransportSource",
    "UnroutedJob",
    "UnroutedJobs",
    "Verification",
    "VhostRefused",
    "Worker",
    "WorkerCounts",
    "WorkerFailed",
    "WorkerStats",
]
