"""The values people hold: what they ask for (JobSpec) and what came of it (Job)."""

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
"""How long a consumer may hold a job when neither its putter nor its topic says so."""


def media_type(content_type: str) -> str:
    """Return a content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def read_body(payload: bytes, content_type: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return bytes as what they are: parsed JSON, a str, or bytes."""
    kind = media_type(content_type)
    if kind == JSON:
        return json.loads(payload)
    return payload.decode() if kind == "text/plain" else payload


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as asked for: the arguments of put, to be given to put_many.

    The job is guaranteed not to be ready before its time; it may be ready slightly after.
    """

    topic: str
    """The kind of job: at most 200 of `A-Z a-z 0-9 . _ -`."""
    body: Any = None
    """A JSON-able value, a pydantic model, a str or bytes."""
    _: KW_ONLY
    delay: float | timedelta = 0
    """How long to wait, in seconds or as a timedelta; at most 9 years. Rounded up.

    A delay below 0 means now, as a time that has passed does.
    """
    at: datetime | None = None
    """When it is due, instead of a delay. Aware. A time that has passed means now."""
    ttr: float | timedelta | None = None
    """How long one consumer may hold it: 1 s to 24 h. The topic's if absent, else 60 s."""
    id: str | None = None
    """Its name, at most 200 bytes; generated when absent."""
    max_attempts: int | None = None
    """How often it may be tried before it is buried; the topic's default when absent."""
    callback: str | None = None
    """An http or https URL for consumers that call one."""
    content_type: str | None = None
    """What a str or bytes body is, if not plain text or plain bytes."""
    backoff: float | timedelta | None = None
    """How long to wait before the second attempt; it doubles with each. The topic's if absent."""
    backoff_max: float | timedelta | None = None
    """What backoff does not grow beyond; the topic's if absent."""
    reply_to: str | None = None
    """The queue that gets the handler's return value, with correlation_id = id."""
    headers: Mapping[str, Any] | None = None
    """Headers of its own, such as a trace id: text, numbers, bool, None, bytes, and lists and dicts
    of them, together at most 32 KiB. Names that begin with `rd-` or `x-`, `CC` and `BCC` are
    refused."""


class JobOptions(TypedDict, total=False):
    """What put and replace take by keyword besides the id: the fields of JobSpec."""

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
    """What put takes by keyword."""

    id: str | None


def make_spec(topic: str, body: object, **options: Unpack[PutOptions]) -> JobSpec:
    """Return what put and replace ask for; an option that there is not is named as such."""
    try:
        return JobSpec(topic, body, **options)
    except TypeError:
        wrong = next((name for name in options if name not in PutOptions.__annotations__), None)
        if wrong is None:
            raise
        near = get_close_matches(wrong, PutOptions.__annotations__, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"there is no option {wrong!r}{hint}") from None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the broker has it."""

    topic: str
    id: str
    token: str
    """Random, one per put: tells two jobs with the same id apart."""
    put_ms: int
    """When it was put, in milliseconds since 1970."""
    due_ms: int
    """When it is due, in milliseconds since 1970, by the putter's clock."""
    ttr_ms: int | None
    """None when its putter left it to the topic."""
    payload: bytes = field(repr=False)
    """The body as it travels."""
    content_type: str = JSON
    attempt: int = 1
    max_attempts: int | None = None
    callback: str | None = None
    backoff_ms: int | None = None
    backoff_max_ms: int | None = None
    reply_to: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """The headers that its putter gave it."""

    @property
    def put(self) -> datetime:
        """When it was put."""
        return datetime.fromtimestamp(self.put_ms / 1000, UTC)

    @property
    def due(self) -> datetime:
        """When it is due."""
        return datetime.fromtimestamp(self.due_ms / 1000, UTC)

    @property
    def delay(self) -> timedelta:
        """How long it was asked to wait."""
        return timedelta(milliseconds=self.due_ms - self.put_ms)

    @property
    def ttr(self) -> timedelta:
        """How long one consumer may hold it."""
        return timedelta(milliseconds=DEFAULT_TTR_MS if self.ttr_ms is None else self.ttr_ms)

    @property
    def body(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """The body as it was given: parsed JSON, a str, or bytes."""
        return read_body(self.payload, self.content_type)


def _duration(value: object) -> object:
    """Let durations in files be numbers of seconds or text like `30m`."""
    if isinstance(value, str):
        return timedelta(milliseconds=duration.parse(value, what="duration"))
    return value if isinstance(value, timedelta) else _seconds(value)


def _seconds(value: object) -> timedelta:
    if isinstance(value, (int, float)):
        return timedelta(milliseconds=duration.milliseconds(value, what="duration"))
    raise InvalidJob(f"a duration must be seconds or text like '30m', not {value!r}")


def _delay(value: object) -> object:
    """Read a delay like a duration; a negative one means now."""
    if isinstance(value, str):
        return timedelta(milliseconds=duration.parse_delay(value, what="duration"))
    return _duration(value)


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Delay = Annotated[timedelta, BeforeValidator(_delay)]


class JobLine(BaseModel):
    """One line of a `jobs.jsonl`: a JobSpec as JSON, with durations as people write them."""

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
        """Return it as what put_many takes."""
        return JobSpec(**{name: getattr(self, name) for name in type(self).model_fields})
