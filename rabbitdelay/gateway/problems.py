"""Problems: every error as an RFC 9457 problem document, from one table of statuses and titles."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fastapi.responses import Response

from rabbitdelay import errors
from rabbitdelay.errors import PutManyFailed
from rabbitdelay.gateway.http.request_id import current_request_id
from rabbitdelay.models import Job

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 1_000
"""Number of characters of a detail: some errors repeat a value, which may be any size."""
RETRY_AFTER_SECONDS = 2
"""Seconds after which a client should try again."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Status and title of a kind of error."""

    status: int
    title: str


class Refusal(Exception):
    """Base class of the refusals of the gateway itself, before the client is called."""

    kind: ClassVar[Kind]

    def __init__(self, detail: str, **members: object) -> None:
        super().__init__(detail)
        self.members = members
        """Additional members of the problem document."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Additional headers of the response."""
        return {}


class MalformedRequest(Refusal):
    """The request cannot be read: it is not JSON, or not an object."""

    kind = Kind(400, "The request cannot be read")


class InvalidRequest(Refusal):
    """The request can be read, but breaks a rule: an unknown member, a wrong type, a bad value."""

    kind = Kind(422, "A value in the request is invalid")


class TokenRequired(Refusal):
    """The request has no token, or one that the gateway does not know."""

    kind = Kind(401, "A valid token is required")

    @property
    def headers(self) -> Mapping[str, str]:
        """The challenge that belongs to status 401."""
        return {"WWW-Authenticate": 'Bearer realm="rabbitdelay"'}


class AccessRefused(Refusal):
    """The token does not have the right, or not for this topic."""

    kind = Kind(403, "The token does not allow this")


class NotFound(Refusal):
    """The path, or the thing that it names, does not exist."""

    kind = Kind(404, "Not found")


class MethodNotAllowed(Refusal):
    """The path exists, but not with this method."""

    kind = Kind(405, "Method not allowed")


class RequestTooLarge(Refusal):
    """The request's body is larger than the gateway accepts."""

    kind = Kind(413, "The request is too large")


class UnsupportedMediaType(Refusal):
    """The request's content type is not one that this path accepts."""

    kind = Kind(415, "The content type is not supported")


class ShuttingDown(Refusal):
    """The gateway is stopping and hands out no more jobs."""

    kind = Kind(503, "The gateway is shutting down")

    @property
    def headers(self) -> Mapping[str, str]:
        """When to try again, which a load balancer sends to another gateway."""
        return _RETRY_AFTER


class LeasesLost(errors.LeaseLost):
    """Some of several leases are lost, and the jobs of the others are finished."""

    def __init__(self, finished: int, lost: Sequence[tuple[str, str]]) -> None:
        super().__init__(f"{len(lost)} of {finished + len(lost)} leases are lost: {lost[0][1]}")
        self.finished = finished
        self.lost = [lease for lease, _ in lost]


class NotAllPut(PutManyFailed):
    """A batch stopped early, and these of its jobs are confirmed."""

    def __init__(self, error: PutManyFailed, jobs: Mapping[int, Job]) -> None:
        super().__init__(
            str(error),
            confirmed=error.confirmed,
            unconfirmed=error.unconfirmed,
            taken=error.taken,
        )
        self.jobs = jobs
        """The confirmed jobs by their positions in the request."""


_RETRY_AFTER = {"Retry-After": str(RETRY_AFTER_SECONDS)}
_AWAY = "The broker cannot be reached"
_WRONG = "The broker is not set up as the gateway needs it"
_INTERNAL = Kind(500, "Internal error")

KINDS: dict[type[BaseException], Kind] = {
    errors.InvalidJob: Kind(422, "A value in the request is invalid"),
    errors.NotAJob: Kind(502, "A message in the queue is not a job"),
    errors.InvalidConfiguration: Kind(500, "The gateway is configured wrongly"),
    errors.ConnectionFailed: Kind(503, _AWAY),
    errors.BrokerUnreachable: Kind(503, _AWAY),
    errors.LoginRefused: Kind(503, "The broker refuses the gateway's login"),
    errors.VhostRefused: Kind(503, "The broker refuses the gateway's vhost"),
    errors.CertificateRefused: Kind(503, "The TLS handshake with the broker failed"),
    errors.ManagementUnreachable: Kind(503, "The broker's management API cannot be reached"),
    errors.TopologyError: Kind(502, _WRONG),
    errors.TopologyMissing: Kind(404, "The topic does not exist"),
    errors.NamespaceMissing: Kind(404, "The namespace does not exist"),
    errors.NamespaceInUse: Kind(409, "The namespace is in use"),
    errors.TopologyConflict: Kind(502, _WRONG),
    errors.QueueUnavailable: Kind(503, "A queue is not available"),
    errors.PermissionRefused: Kind(502, "The broker refuses the gateway a permission"),
    errors.OutcomeUnknown: Kind(503, "The broker did not confirm in time"),
    errors.BrokerBlocked: Kind(503, "The broker is blocked by an alarm"),
    errors.JobRefused: Kind(503, "The broker refused the job"),
    errors.PutManyFailed: Kind(503, "Not all jobs were put"),
    errors.DeleteManyFailed: Kind(503, "Not all deletes were confirmed"),
    errors.LeaseLost: Kind(409, "The lease is lost"),
    errors.TimedOut: Kind(409, "The job's time to run is over"),
    errors.NoResponse: Kind(410, "No response will come"),
    errors.HandlerVerdict: _INTERNAL,
    errors.Retry: _INTERNAL,
    errors.ActionFailed: _INTERNAL,
    errors.Bury: _INTERNAL,
    errors.HandlerDied: _INTERNAL,
    errors.HandlerRaised: _INTERNAL,
    errors.CutOff: Kind(503, "The log of deletes cannot be read"),
    errors.WorkerFailed: _INTERNAL,
    errors.ClientClosed: Kind(503, "The gateway is shutting down"),
    errors.BrokerProcessError: Kind(503, _AWAY),
    errors.RabbitDelayError: _INTERNAL,
}
"""Status and title of every error of the client."""


def name_of(kind: type[BaseException]) -> str:
    """Return the name of an error in a problem's type: `lease-lost`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=A)(?=Job)", "-", kind.__name__).lower()


def response_to(error: Exception) -> Response:
    """Return the response that reports an error."""
    kind = _kind(error)
    headers = dict(error.headers) if isinstance(error, Refusal) else {}
    if kind.status == 503:  # noqa: PLR2004 - the status itself
        headers |= _RETRY_AFTER
    return _response(_known_class(error), kind, str(error), _members(error), headers)


def without_detail(error: Exception) -> Response:
    """Return a response that names the kind of an error, to a caller that needs no token.

    The text of an error of the client may have the address of the broker and the name of its user.
    """
    if isinstance(error, Refusal):
        return response_to(error)
    kind = _kind(error)
    headers = _RETRY_AFTER if kind.status == 503 else {}  # noqa: PLR2004 - the status itself
    return _response(_known_class(error), kind, "The gateway's log says why.", {}, headers)


def internal_error() -> Response:
    """Return the response to an error that is a fault of the gateway, without its text."""
    detail = "The gateway has failed; its log says why."
    return _response(errors.RabbitDelayError, _INTERNAL, detail, {}, {})


def _kind(error: Exception) -> Kind:
    if isinstance(error, Refusal):
        return error.kind
    if isinstance(error, errors.OutcomeUnknown) and error.sent:
        return Kind(202, _table_kind(error).title)
    cause = error.__cause__
    if isinstance(error, errors.PutManyFailed | errors.DeleteManyFailed) and cause is not None:
        return Kind(_table_kind(cause).status, _table_kind(error).title)
    return _table_kind(error)


def _table_kind(error: BaseException) -> Kind:
    return KINDS.get(_known_class(error), _INTERNAL)


def _known_class(error: BaseException) -> type[BaseException]:
    """Return the class of an error, or its nearest base class that clients know."""
    return next((one for one in type(error).__mro__ if one in KINDS), type(error))


def _members(error: Exception) -> Mapping[str, object]:
    match error:
        case Refusal():
            return error.members
        case errors.OutcomeUnknown():
            return {"sent": error.sent}
        case errors.PutManyFailed():
            counts = {"confirmed": error.confirmed, "taken": error.taken}
            return {**counts, "unconfirmed": error.unconfirmed, **_jobs(error)}
        case LeasesLost():
            return {"finished": error.finished, "lost": error.lost}
        case errors.DeleteManyFailed():
            return {"deleted": error.deleted}
    return {}


def _jobs(error: errors.PutManyFailed) -> Mapping[str, object]:
    if not isinstance(error, NotAllPut):
        return {}
    jobs = sorted(error.jobs.items())
    return {"jobs": [{"position": position, "id": job.id} for position, job in jobs]}


def _response(
    error: type[BaseException],
    kind: Kind,
    detail: str,
    members: Mapping[str, Any],
    headers: Mapping[str, str],
) -> Response:
    problem = {
        "type": f"/problems/{name_of(error)}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail if len(detail) <= MAX_DETAIL else f"{detail[:MAX_DETAIL]}…",
        **members,
    }
    if (request_id := current_request_id.get()) is not None:
        problem["request_id"] = request_id
    content = json.dumps(problem, ensure_ascii=False).encode(errors="replace")
    return Response(content, kind.status, dict(headers), media_type=MEDIA_TYPE)
