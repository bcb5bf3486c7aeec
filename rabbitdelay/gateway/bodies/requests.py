"""The requests with JSON bodies: their members, types and schemas."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
)

from rabbitdelay import models
from rabbitdelay.errors import InvalidJob
from rabbitdelay.gateway.bodies import raw_json
from rabbitdelay.gateway.problems import InvalidRequest, MalformedRequest
from rabbitdelay.models import BYTES, JSON, TEXT, JobSpec, media_type

MAX_JOBS_AT_ONCE = 1_000
"""Maximum number of jobs in the answer to one pop."""
_DURATION_SCHEMA = {
    "description": "Seconds, or text such as `30m`, `1h30m` or `250ms`.",
    "oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
    "examples": [30, "30m", "1h30m"],
}
_SHOWN = 40
"""Number of characters of a name that is quoted in an error."""


@dataclass(frozen=True, slots=True)
class RawJson:
    """A JSON value as the text that the request has."""

    text: str


def _moment(value: object) -> object:
    """Refuse numbers, which pydantic would read as seconds or milliseconds by their size."""
    if not isinstance(value, str):
        raise InvalidJob("a time must be text like '2027-01-01T00:00:00Z'")
    return value


def _topics(value: object) -> object:
    return [value] if isinstance(value, str) else value


Model = TypeVar("Model", bound="Request")
Duration = Annotated[models.Duration, WithJsonSchema(_DURATION_SCHEMA)]
Delay = Annotated[models.Delay, WithJsonSchema(_DURATION_SCHEMA)]
Moment = Annotated[
    AwareDatetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Topic = Annotated[
    StrictStr,
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "pattern": "^[A-Za-z0-9._-]+$",
            "examples": ["orderclose"],
        }
    ),
]
JobId = Annotated[
    StrictStr,
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200, "examples": ["order-42"]}),
]
Lease = Annotated[StrictStr, Field(description="The `lease` that a pop returned.")]


class Request(BaseModel):
    """A request whose members are known, so that a misspelt one is refused."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class PutOptions(Request):
    """How and when a job runs."""

    delay: Delay = Field(timedelta(0), description="Time until the job is due.")
    at: Moment | None = Field(
        None, description="Time at which the job is due, with its time zone, instead of `delay`."
    )
    ttr: Duration | None = Field(
        None, description="Time to run: how long one consumer may reserve the job, 1 s to 24 h."
    )
    max_attempts: StrictInt | None = Field(
        None, description="Number of attempts after which the job is buried."
    )
    callback: StrictStr | None = Field(
        None, description="An http or https URL, for consumers that call one."
    )
    content_type: StrictStr | None = Field(
        None,
        description="Content type of the body. Default: `application/json` for `body`, "
        "`application/octet-stream` for `body_base64`.",
    )
    backoff: Duration | None = Field(None, description="Delay before the second attempt.")
    backoff_max: Duration | None = Field(None, description="Upper bound of the backoff.")
    headers: dict[str, Any] | None = Field(
        None, description="Additional headers of the job, such as a trace id."
    )
    reply: StrictBool = Field(
        False,  # noqa: FBT003 - the default of a member
        description="Whether to keep the response of the job's handler for "
        "`GET /v1/jobs/{id}/response`.",
    )


class ReplaceRequest(PutOptions):
    """The job that replaces all jobs with its id."""

    topic: Topic = Field(description="The kind of job.")
    body: Any = Field(None, description="Any JSON value; it is stored as it is written here.")
    body_base64: StrictStr | None = Field(
        None, description="The body in base64, instead of `body`, if it is not JSON."
    )

    def spec(self, id: str | None = None) -> JobSpec:
        """Return the job to put.

        Raises:
            InvalidRequest: Both bodies are given, or the body does not fit its content type.
        """
        payload, content_type = self._payload()
        return JobSpec(
            self.topic,
            payload,
            delay=self.delay,
            at=self.at,
            ttr=self.ttr,
            id=id,
            max_attempts=self.max_attempts,
            callback=self.callback,
            content_type=content_type,
            backoff=self.backoff,
            backoff_max=self.backoff_max,
            headers=self.headers,
        )

    def _payload(self) -> tuple[bytes, str]:
        if self.body_base64 is None:
            text = self.body.text if isinstance(self.body, RawJson) else "null"
            return _payload(text, self.content_type)
        if self.body is not None:
            raise InvalidRequest("give either body or body_base64, not both", member="body_base64")
        try:
            content = base64.b64decode(self.body_base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"body_base64: {error}", member="body_base64") from None
        return content, self.content_type or BYTES


class PutRequest(ReplaceRequest):
    """A job to put."""

    id: JobId | None = Field(None, description="The job's id. Default: generated.")

    def put_spec(self) -> JobSpec:
        """Return the job to put, with its id."""
        return self.spec(self.id)


class PutManyRequest(Request):
    """Jobs to put in one request."""

    jobs: list[PutRequest]


class DeleteRequest(Request):
    """Ids of jobs to delete."""

    ids: list[JobId] = Field(description="At most as many as the request's size allows.")


class PopRequest(Request):
    """A request for jobs."""

    topics: Annotated[list[Topic], BeforeValidator(_topics)] = Field(
        description="One topic or several. Several have the same priority.",
        json_schema_extra={
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        },
    )
    max: StrictInt = Field(
        1, ge=1, le=MAX_JOBS_AT_ONCE, description="Maximum number of jobs in the answer."
    )
    wait: Duration = Field(
        timedelta(0), description="Longest wait for the first job; at most 50 s by default."
    )


class LeaseRequest(Request):
    """The lease of one job."""

    lease: Lease


class FinishRequest(Request):
    """The lease of the job that is done, or the leases of several."""

    lease: Lease | None = None
    leases: list[Lease] | None = None

    def all(self) -> list[str]:
        """Return the leases; raise InvalidRequest unless exactly one member is given."""
        if (self.lease is None) == (self.leases is None):
            raise InvalidRequest("give either lease or leases", member="lease")
        return [self.lease] if self.lease is not None else self.leases or []


class ReleaseRequest(LeaseRequest):
    """The lease of a job to release."""

    delay: Delay | None = Field(
        None, description="Delay before the next attempt. Default: the job's backoff."
    )


class BuryRequest(LeaseRequest):
    """The lease of a job to bury."""

    reason: StrictStr = Field(
        "buried over HTTP", description="Why, for the person who looks at it."
    )


def read(model: type[Model], content: bytes) -> Model:
    """Return the request in a JSON object.

    Raises:
        MalformedRequest: It is not a JSON object.
        InvalidRequest: A member is unknown or invalid.
    """
    return validated(
        model, {name: _read(name, text) for name, text in raw_json.members(content).items()}
    )


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Return the request with these values; raise InvalidRequest if they break a rule."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _refusal(model, error) from None


def _read(name: str, text: str) -> Any:  # noqa: ANN401 - any JSON value
    return RawJson(text) if name == "body" else raw_json.value(text)


def _payload(text: str, content_type: str | None) -> tuple[bytes, str]:
    """Return the bytes of a body: JSON as it is written, or the text in a JSON string."""
    kind = JSON if content_type is None else media_type(content_type)
    if kind == JSON or kind.endswith("+json"):
        return text.encode(), content_type or JSON
    value = raw_json.value(text)
    if kind.startswith("text/") and isinstance(value, str):
        return _encoded(value), content_type or TEXT
    raise InvalidRequest(
        f"a body with content type {kind[:_SHOWN]!r} must be given as body_base64",
        member="content_type",
    )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedRequest("body has half of a surrogate pair") from None


def _refusal(model: type[BaseModel], error: ValidationError) -> InvalidRequest:
    """Return all complaints, without the values, which may be secret."""
    found = [
        {"member": ".".join(map(str, one["loc"])), "detail": _complaint(model, one)}
        for one in error.errors(include_url=False, include_input=False)
    ]
    first = found[0]
    place = f"{first['member'][:_SHOWN]}: " if first["member"] else ""
    return InvalidRequest(f"{place}{first['detail']}", errors=found)


def _complaint(model: type[BaseModel], error: Mapping[str, Any]) -> str:
    if error["type"] != "extra_forbidden":
        return str(error["msg"]).removeprefix("Value error, ")
    near = get_close_matches(str(error["loc"][-1]), model.model_fields, 1)
    return f"unknown member{f'; did you mean {near[0]!r}?' if near else ''}"
