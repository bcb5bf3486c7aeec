"""Delayed jobs on plain RabbitMQ: no plugin, no scheduler process, no second database."""

from rabbitdelay.core.responses import Response
from rabbitdelay.core.retry import RetryPolicy
from rabbitdelay.errors import (
    BrokerBlocked,
    BrokerUnreachable,
    Bury,
    CertificateRefused,
    ClientClosed,
    ConnectionFailed,
    InvalidConfiguration,
    InvalidJob,
    JobBuried,
    JobRefused,
    LeaseLost,
    LoginRefused,
    NotAJob,
    OutcomeUnknown,
    PermissionRefused,
    PutManyFailed,
    RabbitDelayError,
    Retry,
    TopologyConflict,
    TopologyError,
    TopologyMissing,
    VhostRefused,
    WorkerFailed,
)
from rabbitdelay.models import Job, JobSpec
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.reserved import ReservedJob
from rabbitdelay.sync.worker import Worker

__all__ = [
    "BrokerBlocked",
    "BrokerUnreachable",
    "Bury",
    "CertificateRefused",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "InvalidConfiguration",
    "InvalidJob",
    "Job",
    "JobBuried",
    "JobRefused",
    "JobSpec",
    "LeaseLost",
    "LoginRefused",
    "NotAJob",
    "OutcomeUnknown",
    "PermissionRefused",
    "PutManyFailed",
    "RabbitDelayError",
    "ReservedJob",
    "Response",
    "Retry",
    "RetryPolicy",
    "TopologyConflict",
    "TopologyError",
    "TopologyMissing",
    "VhostRefused",
    "Worker",
    "WorkerFailed",
]
