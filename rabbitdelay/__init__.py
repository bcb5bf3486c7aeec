"""Delayed jobs on plain RabbitMQ: no plugin, no scheduler process, no second database."""

from rabbitdelay.errors import (
    BrokerBlocked,
    BrokerUnreachable,
    CertificateRefused,
    ClientClosed,
    ConnectionFailed,
    InvalidConfiguration,
    InvalidJob,
    JobRefused,
    LoginRefused,
    OutcomeUnknown,
    PermissionRefused,
    PutManyFailed,
    RabbitDelayError,
    TopologyConflict,
    TopologyError,
    TopologyMissing,
    VhostRefused,
)
from rabbitdelay.models import Job, JobSpec
from rabbitdelay.sync.client import Client

__all__ = [
    "BrokerBlocked",
    "BrokerUnreachable",
    "CertificateRefused",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "InvalidConfiguration",
    "InvalidJob",
    "Job",
    "JobRefused",
    "JobSpec",
    "LoginRefused",
    "OutcomeUnknown",
    "PermissionRefused",
    "PutManyFailed",
    "RabbitDelayError",
    "TopologyConflict",
    "TopologyError",
    "TopologyMissing",
    "VhostRefused",
]
