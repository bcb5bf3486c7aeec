"""The JSON form of a job, printed by `put --json` and read by `delete` and `reschedule`.

Scripts depend on the format: keys may be added, but existing keys never change their meaning.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)

from rabbitdelay import duration
from rabbitdelay.cli.output.amqp_values import plain
from rabbitdelay.cli.output.bodies import body_text
from rabbitdelay.cli.output.text import moment
from rabbitdelay.core.jobs import validation
from rabbitdelay.errors import InvalidJob
from rabbitdelay.models import BYTES, Duration, Job

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NO_BODY = "has no body_text or body_base64: use the output of `rabbitdelay put --json`"


def job_as_json(job: Job) -> dict[str, object]:
    """Return a job as a JSON object with everything needed to put it again."""
    text = body_text(job.payload)
    return {
        "topic": job.topic,
        "id": job.id,
        "token": job.token,
        "put": moment(job.put_ms),
        "due": moment(job.due_ms),
        "ttr_ms": duration.milliseconds(job.ttr, what="ttr"),
        "content_type": job.content_type,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "callback": job.callback,
        "ttr": _described(job.ttr_ms),
        "backoff": _described(job.backoff_ms),
        "backoff_max": _described(job.backoff_max_ms),
        "reply_to": job.reply_to,
        "headers": plain(job.headers),
        "body_text": text,
        "body_base64": None if text is not None else b64encode(job.payload).decode(),
    }


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidJob("not valid Unicode text") from None
    return text


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except TypeError:
        raise InvalidJob(f"not base64: {text!r}") from None


class PrintedJob(BaseModel):
    """A job in its JSON form; a delete requires only the id."""

    id: Annotated[str, BeforeValidator(validation.check_id)]
    token: str = ""
    topic: Annotated[str, BeforeValidator(validation.check_topic)] | None = None
    put: AwareDatetime = _EPOCH
    due: AwareDatetime | None = None
    content_type: str = BYTES
    attempt: Annotated[int, Field(ge=1)] = 1
    max_attempts: int | None = None
    callback: str | None = None
    ttr: Duration | None = None
    backoff: Duration | None = None
    backoff_max: Duration | None = None
    reply_to: str | None = None
    headers: dict[str, Any] = Field(default_factory=dict)
    body_text: Annotated[str, AfterValidator(_checked)] | None = None
    body_base64: Annotated[bytes, BeforeValidator(_decoded)] | None = None

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if self.token and self.due is None:
            raise ValueError("a job with a token needs its due time too")
        if min(self.put, self.due or self.put) < _EPOCH:
            raise ValueError("put and due times must not be before 1970")
        return self

    def to_delete(self) -> str | Job:
        """Return what to delete: this job if its token is known, else all jobs with its id."""
        return self._job(b"") if self.token else self.id

    def job(self) -> Job:
        """Return the whole job."""
        if not self.token or self.topic is None:
            missing = "topic" if self.token else "token"
            raise InvalidJob(f"has no {missing}: use the output of `rabbitdelay put --json`")
        if self.body_text is None and self.body_base64 is None:
            raise InvalidJob(_NO_BODY)
        text = self.body_text
        return self._job((self.body_base64 or b"") if text is None else text.encode())

    def _job(self, payload: bytes) -> Job:
        return Job(
            self.topic or "",
            self.id,
            self.token,
            _time_ms(self.put),
            _time_ms(self.due or self.put),
            _milliseconds(self.ttr),
            payload,
            self.content_type,
            self.attempt,
            max_attempts=self.max_attempts,
            callback=self.callback,
            backoff_ms=_milliseconds(self.backoff),
            backoff_max_ms=_milliseconds(self.backoff_max),
            reply_to=self.reply_to,
            headers=self.headers,
        )


def read_jobs(
    lines: Iterable[bytes], on_line: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[int, str | PrintedJob]]:
    """Yield ids, one per line, and jobs, on one line each or indented as printed.

    Each item comes with the number of its first line. Errors include the line number too.
    """
    numbered = _numbered(lines, on_line)
    for number, line in numbered:
        try:
            if not line.startswith(b"{"):
                yield number, validation.check_id(line.decode())
            else:
                yield number, _parse(line if line.endswith(b"}") else _whole(line, numbered))
        except UnicodeDecodeError:
            raise InvalidJob(f"line {number}: not UTF-8 text") from None
        except InvalidJob as error:
            raise InvalidJob(f"line {number}: {error}") from None


def _numbered(
    lines: Iterable[bytes], on_line: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, start=1):
        on_line(len(line))
        if stripped := line.rstrip(b"\r\n"):
            yield number, stripped


def _whole(first: bytes, following: Iterator[tuple[int, bytes]]) -> bytes:
    """Return the lines of an indented object, up to the line that is a single closing brace."""
    whole = [first]
    for _, line in following:
        whole.append(line)
        if line == b"}":
            break
    return b"\n".join(whole)


def _parse(text: bytes) -> PrintedJob:
    try:
        fields: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidJob(f"not JSON: {error}") from None
    try:
        return PrintedJob.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{first['loc'][0]}: " if first["loc"] else ""
        raise InvalidJob(where + first["msg"].removeprefix("Value error, ")) from None


def _described(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else duration.describe(duration_ms)


def _milliseconds(value: timedelta | None) -> int | None:
    return None if value is None else duration.milliseconds(value, what="duration")


def _time_ms(time: datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND
