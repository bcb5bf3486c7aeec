"""Delayed jobs on plain RabbitMQ: no plugin, no scheduler process, no second database."""

from rabbitdelay.core.outcome import Outcome
from rabbitdelay.core.responses import Response
from rabbitdelay.core.retry import RetryPolicy
from rabbitdelay.engine.working import WorkerStats
from rabbitdelay.errors import (
    BrokerBlocked,
    BrokerUnreachable,
    Bury,
    CertificateRefused,
    ClientClosed,
    ConnectionFailed,
    HandlerDied,
    HandlerRaised,
    InvalidConfiguration,
    InvalidJob,
    JobRefused,
    LeaseLost,
    LoginRefused,
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
from rabbitdelay.handling.reserved import ReservedJob
from rabbitdelay.models import Job, JobSpec
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.worker import Worker

__all__ = [
    "BrokerBlocked",
    "BrokerUnreachable",
    "Bury",
    "CertificateRefused",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "HandlerDied",
    "HandlerRaised",
    "InvalidConfiguration",
    "InvalidJob",
    "Job",
    "JobRefused",
    "JobSpec",
    "LeaseLost",
    "LoginRefused",
    "NoResponse",
    "NotAJob",
    "Outcome",
    "OutcomeUnknown",
    "PermissionRefused",
    "PutManyFailed",
    "QueueUnavailable",
    "RabbitDelayError",
    "ReservedJob",
    "Response",
    "Retry",
    "RetryPolicy",
    "TimedOut",
    "TopologyConflict",
    "TopologyError",
    "TopologyMissing",
    "VhostRefused",
    "Worker",
    "WorkerFailed",
    "WorkerStats",
]
