"""Public values: JobSpec is what a caller puts, Job is what the broker has stored."""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any, TypedDict, Unpack

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict

from rabbitdelay import duration
from rabbitdelay.errors import InvalidJob

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"

DEFAULT_TTR_MS = 60_000
"""Time to run, in milliseconds, of jobs for which neither put nor the topic sets one."""


def media_type(content_type: str) -> str:
    """Return a content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def read_body(payload: bytes, content_type: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Decode a payload by its content type: parsed JSON, a str, or bytes."""
    kind = media_type(content_type)
    if kind == JSON:
        return json.loads(payload)
    return payload.decode() if kind == "text/plain" else payload


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The arguments of put as one value, for put_many.

    A job is never ready before its time; it may be ready slightly after.
    """

    topic: str
    """The kind of job: at most 200 characters of `A-Z a-z 0-9 . _ -`."""
    body: Any = None
    """A value that can be written as JSON, a pydantic model, a str or bytes."""
    _: KW_ONLY
    delay: float | timedelta = 0
    """Time until the job is due, in seconds or as a timedelta; at most 9 years. Rounded up.

    A negative delay means now, like an `at` in the past.
    """
    at: datetime | None = None
    """The time at which the job is due, instead of `delay`: an aware datetime. A time in the past
    means now."""
    ttr: float | timedelta | None = None
    """Time to run: how long one consumer may reserve the job, 1 s to 24 h. Default: the topic's,
    else 60 s."""
    id: str | None = None
    """The job's id, at most 200 bytes. Default: generated."""
    max_attempts: int | None = None
    """Maximum number of attempts before the job is buried. Default: the topic's."""
    callback: str | None = None
    """An http or https URL, for consumers that call one."""
    content_type: str | None = None
    """Content type of a str or bytes body. Default: plain text for str, octet-stream for bytes."""
    backoff: float | timedelta | None = None
    """Delay before the second attempt, doubled for each further one. Default: the topic's."""
    backoff_max: float | timedelta | None = None
    """Upper bound of the backoff. Default: the topic's."""
    reply_to: str | None = None
    """Queue that receives the handler's return value, with the job's id as correlation_id."""
    headers: Mapping[str, Any] | None = None
    """Additional headers, such as a trace id: text, numbers, bool, None, bytes, and lists and dicts
    of these, at most 32 KiB together. `CC`, `BCC` and names that begin with `rd-` or `x-` are
    refused."""


class JobOptions(TypedDict, total=False):
    """Keyword arguments of put and replace, except the id: the fields of JobSpec."""

    delay: float | timedelta
    at: datetime | None
    ttr: float | timedelta | None
    max_attempts: int | None
    callback: str | None
    content_type: str | None
    backoff: float | timedelta | None
    backoff_max: float | timedelta | None
    reply_to: str | None
    headers: Mapping[str, Any] | None


class PutOptions(JobOptions, total=False):
    """Keyword arguments of put."""

    id: str | None


def make_spec(topic: str, body: object, **options: Unpack[PutOptions]) -> JobSpec:
    """Build the JobSpec of a put or a replace; raise a TypeError that names an unknown option."""
    try:
        return JobSpec(topic, body, **options)
    except TypeError:
        wrong = next((name for name in options if name not in PutOptions.__annotations__), None)
        if wrong is None:
            raise
        near = get_close_matches(wrong, PutOptions.__annotations__, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"unknown option {wrong!r}{hint}") from None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the broker has stored it."""

    topic: str
    id: str
    token: str
    """Random, unique per put: distinguishes jobs with the same id."""
    put_ms: int
    """Time of the put, in milliseconds since 1970, by the publisher's clock."""
    due_ms: int
    """Time at which the job is due, in milliseconds since 1970, by the publisher's clock."""
    ttr_ms: int | None
    """Time to run in milliseconds; None if the topic decides."""
    payload: bytes = field(repr=False)
    """The encoded body."""
    content_type: str = JSON
    attempt: int = 1
    max_attempts: int | None = None
    callback: str | None = None
    backoff_ms: int | None = None
    backoff_max_ms: int | None = None
    reply_to: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """Additional headers, as given to put."""

    @property
    def put(self) -> datetime:
        """Time of the put."""
        return datetime.fromtimestamp(self.put_ms / 1000, UTC)

    @property
    def due(self) -> datetime:
        """Time at which the job is due."""
        return datetime.fromtimestamp(self.due_ms / 1000, UTC)

    @property
    def delay(self) -> timedelta:
        """The requested delay: due time minus put time."""
        return timedelta(milliseconds=self.due_ms - self.put_ms)

    @property
    def ttr(self) -> timedelta:
        """Time to run: how long one consumer may reserve the job."""
        return timedelta(milliseconds=DEFAULT_TTR_MS if self.ttr_ms is None else self.ttr_ms)

    @property
    def body(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """The body as it was put: parsed JSON, a str, or bytes."""
        return read_body(self.payload, self.content_type)


def _duration(value: object) -> object:
    """Read a duration from a file: a number of seconds, or text like `30m`."""
    if isinstance(value, str):
        return _timedelta(duration.parse(value, what="duration"))
    return value if isinstance(value, timedelta) else _seconds(value)


def _seconds(value: object) -> timedelta:
    if isinstance(value, (int, float)):
        return _timedelta(duration.milliseconds(value, what="duration"))
    raise InvalidJob(f"a duration must be a number of seconds or text like '30m', not {value!r}")


def _timedelta(duration_ms: int) -> timedelta:
    try:
        return timedelta(milliseconds=duration_ms)
    except OverflowError:
        raise InvalidJob("a duration must be shorter than 2.7 million years") from None


def _delay(value: object) -> object:
    """Read a delay like a duration. A negative delay means now."""
    if isinstance(value, str):
        return _timedelta(duration.parse_delay(value, what="duration"))
    return _duration(value)


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Delay = Annotated[timedelta, BeforeValidator(_delay)]


class JobLine(BaseModel):
    """One line of a `jobs.jsonl` file: a JobSpec as JSON, with durations like `30m`."""

    model_config = ConfigDict(extra="forbid")

    topic: str
    body: Any = None
    delay: Delay = timedelta(0)
    at: AwareDatetime | None = None
    ttr: Duration | None = None
    id: str | None = None
    max_attempts: int | None = None
    callback: str | None = None
    content_type: str | None = None
    backoff: Duration | None = None
    backoff_max: Duration | None = None
    reply_to: str | None = None
    headers: dict[str, Any] | None = None

    def spec(self) -> JobSpec:
        """Return this line as a JobSpec, for put_many."""
        return JobSpec(**{name: getattr(self, name) for name in type(self).model_fields})
