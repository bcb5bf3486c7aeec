"""The requests that put jobs: JSON, lines of JSON, or raw bytes with options in the URL."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, StrictBool, StrictInt, StrictStr

from rabbitdelay.gateway.bodies import raw_json, reader
from rabbitdelay.gateway.bodies.fields import Delay, Duration, JobId, Moment, Request, Topic
from rabbitdelay.gateway.problems import InvalidRequest, Refusal, UnsupportedMediaType
from rabbitdelay.models import BYTES, JSON, TEXT, JobSpec, media_type

NDJSON = "application/x-ndjson"
MAX_JOBS = 10_000
"""Maximum number of jobs in one request: the gateway serves no other client while it reads them."""
_SHOWN = 60
"""Number of characters of a content type that an error quotes."""


@dataclass(frozen=True, slots=True)
class RawJson:
    """A JSON value as the text that the request has."""

    text: str


class Options(Request):
    """How and when a job runs."""

    delay: Delay = Field(0, description="Time until the job is due.", validate_default=True)
    at: Moment | None = Field(
        None, description="Time at which the job is due, with its time zone, instead of `delay`."
    )
    ttr: Duration | None = Field(
        None, description="Time to run: how long one consumer may reserve the job, 1 s to 24 h."
    )
    callback: StrictStr | None = Field(
        None, description="An http or https URL, for consumers that call one."
    )
    backoff: Duration | None = Field(None, description="Delay before the second attempt.")
    backoff_max: Duration | None = Field(None, description="Upper bound of the backoff.")


class QueryPut(Options):
    """The options of a job whose body is the body of the request."""

    topic: Topic = Field(description="The kind of job.")
    id: JobId | None = Field(None, description="Id of the job. Default: generated.")
    max_attempts: int | None = Field(
        None, description="Number of attempts after which the job is buried."
    )
    reply: bool = Field(
        False,  # noqa: FBT003 - the default of a parameter
        description="Whether to keep the response to the job.",
    )


class ReplaceRequest(Options):
    """The job that replaces all jobs with its id."""

    topic: Topic = Field(description="The kind of job.")
    body: Any = Field(None, description="Any JSON value. It is stored as it is written here.")
    body_base64: StrictStr | None = Field(
        None, description="The body in base64, instead of `body`, if it is not JSON."
    )
    content_type: StrictStr | None = Field(
        None,
        description="Content type of the body. Default: `application/json` for `body`, "
        "`application/octet-stream` for `body_base64`. With a type of text, a `body` that is a "
        "string is stored as that text.",
    )
    max_attempts: StrictInt | None = Field(
        None, description="Number of attempts after which the job is buried."
    )
    headers: dict[str, Any] | None = Field(
        None, description="Additional headers of the job, such as a trace id."
    )

    def spec(self, id: str | None) -> JobSpec:
        """Return the job to put.

        Raises:
            InvalidRequest: Both bodies are given, or the body does not fit its content type.
        """
        payload, content_type = self._payload()
        return _spec(self, payload, content_type, id, self.headers)

    def _payload(self) -> tuple[bytes, str]:
        if self.body_base64 is None:
            text = self.body.text if isinstance(self.body, RawJson) else "null"
            return _payload(text, self.content_type)
        if self.body is not None:
            raise InvalidRequest("give either body or body_base64, not both")
        try:
            content = base64.b64decode(self.body_base64, validate=True)
        except ValueError as error:
            raise InvalidRequest(f"body_base64: {error}") from None
        return content, self.content_type or BYTES


class PutRequest(ReplaceRequest):
    """A job to put."""

    id: JobId | None = Field(None, description="Id of the job. Default: generated.")
    reply: StrictBool = Field(
        False,  # noqa: FBT003 - the default of a member
        description="Whether to keep the response to the job for `GET /v1/jobs/{id}/response`.",
    )


class PutManyRequest(Request):
    """Jobs to put."""

    jobs: list[PutRequest]


@dataclass(frozen=True, slots=True)
class Put:
    """A job to put, and whether its response is wanted."""

    spec: JobSpec
    reply: bool


def read_put(content_type: str, query: Mapping[str, str], content: bytes) -> Put:
    """Return the job in a request: in JSON, or raw if its topic is in the URL."""
    if query:
        asked = reader.validated(QueryPut, query, "parameter")
        return Put(_spec(asked, content, content_type or BYTES, asked.id), asked.reply)
    if not is_json_type(content_type):
        raise UnsupportedMediaType(
            f"content type {content_type[:_SHOWN]!r}: send a JSON object as {JSON}, or give the "
            "topic and the other options in the URL (?topic=mail&delay=30m) to put the request's "
            "body as it is"
        )
    return _put(content)


def read_replace(content_type: str, content: bytes, id: str) -> JobSpec:
    """Return the job in a request that replaces others."""
    reader.require_json(content_type)
    return reader.read(ReplaceRequest, content, raw=_raw_body).spec(id)


def read_many(content_type: str, content: bytes) -> list[Put]:
    """Return the jobs in a request: a JSON object with `jobs`, or a JSON object in each line."""
    if media_type(content_type) == NDJSON:
        return list(_each(content.split(b"\n"), "line", first=1))
    reader.require_json(content_type)
    members = raw_json.members(content)
    if members.keys() != {"jobs"}:
        reader.validated(PutManyRequest, dict.fromkeys(members, ()))
    texts = raw_json.elements(members["jobs"], "jobs", MAX_JOBS)
    return list(_each(texts, "jobs", first=0))


def is_json_type(content_type: str) -> bool:
    """Whether a content type is that of JSON. One that is missing is taken for it."""
    kind = media_type(content_type)
    return not kind or kind == JSON or kind.endswith("+json")


def _each(contents: Sequence[bytes | str], what: str, *, first: int) -> Iterator[Put]:
    """Yield the job in each text; an error names the text."""
    count = 0
    for number, content in enumerate(contents, start=first):
        if not content.strip():
            continue
        if (count := count + 1) > MAX_JOBS:
            raise InvalidRequest(f"{what}: more than {MAX_JOBS:,} jobs")
        try:
            yield _put(content)
        except Refusal as error:
            raise type(error)(f"{what} {number}: {error}", **error.members) from None


def _put(content: bytes | str) -> Put:
    asked = reader.read(PutRequest, content, raw=_raw_body)
    return Put(asked.spec(asked.id), asked.reply)


def _raw_body(name: str, text: str) -> object:
    return RawJson(text) if name == "body" else raw_json.value(text)


def _spec(
    asked: QueryPut | ReplaceRequest,
    payload: bytes,
    content_type: str,
    id: str | None,
    headers: Mapping[str, Any] | None = None,
) -> JobSpec:
    return JobSpec(
        asked.topic,
        payload,
        delay=asked.delay,
        at=asked.at,
        ttr=asked.ttr,
        id=id,
        max_attempts=asked.max_attempts,
        callback=asked.callback,
        content_type=content_type,
        backoff=asked.backoff,
        backoff_max=asked.backoff_max,
        headers=headers,
    )


def _payload(text: str, content_type: str | None) -> tuple[bytes, str]:
    """Return the bytes of a body: JSON as it is written, or the text in a JSON string."""
    if content_type is None or is_json_type(content_type):
        return text.encode(), content_type or JSON
    value = raw_json.value(text)
    if media_type(content_type).startswith("text/") and isinstance(value, str):
        return raw_json.utf_8(value, "body"), content_type or TEXT
    raise InvalidRequest(
        f"content_type: a body of type {content_type[:_SHOWN]!r} must be given as body_base64"
    )
