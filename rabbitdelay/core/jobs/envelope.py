"""The wire format: encode a Job as an AMQP message, and decode it.

Documented in docs/wire-format.md.

How to change the format:

1. A new header that old readers may ignore: add it here and to the docs. VERSION stays.
2. A change that old readers would misread: raise VERSION, keep reading every older version in
   `decode` (jobs wait for years), add a recorded message of the old version to
   tests/unit/core/jobs/test_envelope.py, and write the new version only after all consumers have
   been upgraded.
3. Never give a header a new meaning. Never remove a reader.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rabbitdelay.core.jobs import ids, validation
from rabbitdelay.core.jobs.headers import own_headers
from rabbitdelay.errors import InvalidJob, NotAJob
from rabbitdelay.models import BYTES, DEFAULT_TTR_MS, Job

VERSION = 1
MAX_TIME_S = (1 << 48) // 1000

_BROKER_HEADERS = frozenset({"x-death", "x-delivery-count", "x-acquired-count", "CC", "BCC"})
_BROKER_PREFIXES = ("x-first-death-", "x-last-death-", "x-opt-")


@dataclass(slots=True)
class Message:
    """An AMQP message, independent of the client library.

    Treat as immutable. Not `frozen=True`, because that makes construction six times slower.
    """

    body: bytes
    headers: Mapping[str, Any]
    message_id: str | None = None
    content_type: str | None = None
    timestamp_s: int | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    content_encoding: str | None = None
    priority: int | None = None
    type: str | None = None
    app_id: str | None = None


_Time = Annotated[int, Field(ge=0, lt=1 << 48)] | None
_Ttr = Annotated[int, Field(ge=validation.MIN_TTR_MS, le=validation.MAX_TTR_MS)] | None
_Attempts = Annotated[int, Field(ge=1, le=validation.MAX_ATTEMPTS)] | None
_Callback = Annotated[str, Field(max_length=validation.MAX_CALLBACK_BYTES)] | None
_Backoff = Annotated[int, Field(ge=0, le=validation.MAX_BACKOFF_MS)] | None

_Headers = TypedDict(
    "_Headers",
    {
        "rd-version": int,
        "rd-put": _Time,
        "rd-due": _Time,
        "rd-known": _Time,
        "rd-ttr": _Ttr,
        "rd-attempt": Annotated[int, Field(ge=1)],
        "rd-max-attempts": _Attempts,
        "rd-token": Annotated[str, Field(max_length=64)],
        "rd-callback": _Callback,
        "rd-backoff": _Backoff,
        "rd-backoff-max": _Backoff,
    },
    total=False,
)
"""The headers that rabbitdelay's clients write. Any of them may be missing, and has a default.

A dict rather than a model, because pydantic validates it in half the time, once for each job.
"""
_validate = TypeAdapter(_Headers).validator.validate_python


def encode(job: Job) -> Message:
    """Return the message that carries a job."""
    headers: dict[str, Any] = {
        "rd-version": VERSION,
        "rd-put": job.put_ms,
        "rd-due": job.due_ms,
        "rd-attempt": job.attempt,
        "rd-token": job.token,
    }
    if job.ttr_ms is not None:
        headers["rd-ttr"] = job.ttr_ms
    if job.max_attempts is not None:
        headers["rd-max-attempts"] = job.max_attempts
    if job.callback is not None:
        headers["rd-callback"] = job.callback
    if job.backoff_ms is not None:
        headers["rd-backoff"] = job.backoff_ms
    if job.backoff_max_ms is not None:
        headers["rd-backoff-max"] = job.backoff_max_ms
    if job.headers:
        headers.update(job.headers)
    return Message(job.payload, headers, job.id, job.content_type, job.put_ms // 1000, job.reply_to)


def decode(
    message: Message,
    *,
    topic: str,
    now_ms: int,
    random_hex: str,
    default_ttr_ms: int = DEFAULT_TTR_MS,
) -> Job:
    """Return the job in a message; raise NotAJob with the reason if there is none.

    A message from another program without `rd-` headers is a job that is due now.
    """
    headers = _read(message.headers)
    put_ms, due_ms, ttr_ms = headers.get("rd-put"), headers.get("rd-due"), headers.get("rd-ttr")
    if put_ms is None:
        timestamp_ms = _timestamp_ms(message)
        put_ms = now_ms if timestamp_ms is None else timestamp_ms
    due_ms = put_ms if due_ms is None else due_ms
    return Job(
        topic,
        _id(message, due_ms, random_hex),
        headers.get("rd-token", ""),
        put_ms,
        due_ms,
        default_ttr_ms if ttr_ms is None else ttr_ms,
        message.body,
        message.content_type or BYTES,
        headers.get("rd-attempt", 1),
        headers.get("rd-max-attempts"),
        headers.get("rd-callback"),
        headers.get("rd-backoff"),
        headers.get("rd-backoff-max"),
        message.reply_to,
        {} if len(headers) == len(message.headers) else own_headers(message.headers),
    )


def named(message: Message, job: Job) -> Message:
    """Return a message without an id, completed with the id and the due time of its job.

    A put time is not added: it would come from the consumer's clock, and deletes are compared with
    it.
    """
    headers = {**message.headers, "rd-due": job.due_ms}
    return replace(message, message_id=job.id, headers=headers)


def tells_when_put(message: Message) -> bool:
    """Whether a message contains its put time.

    Without one, any delete of its id may apply to it.
    """
    return "rd-put" in message.headers or _timestamp_ms(message) is not None


def known_ms(message: Message) -> int | None:
    """Return the time until which consumers keep every delete of this job; None without times.

    A delete of a job is kept at least until the due time that was requested by put. A retry is due
    later than that.
    """
    dates = [message.headers.get(name) for name in ("rd-known", "rd-due")]
    known = [date for date in dates if isinstance(date, int)]
    if known:
        return min(known)
    put_ms = message.headers.get("rd-put")
    if isinstance(put_ms, int):
        return put_ms
    return _timestamp_ms(message)


def redeliveries(message: Message, *, redelivered: bool) -> int:
    """Return the broker's count of earlier deliveries of a job.

    Quorum queues count; other queues only have a flag. RabbitMQ 3.10 counts every return to the
    queue, and 4.3 only returns by a consumer that died or rejected the message.
    """
    count = message.headers.get("x-delivery-count")
    return count if isinstance(count, int) and count >= 0 else int(redelivered)


def fresh_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers without those that brokers add in transit.

    A message may pass each hold queue once. Brokers before 4.0 honour a published `x-death` header,
    and would drop a job that is republished to the ladder with it.
    """
    return {
        name: value
        for name, value in headers.items()
        if name not in _BROKER_HEADERS and not name.startswith(_BROKER_PREFIXES)
    }


def _read(headers: Mapping[str, Any]) -> _Headers:
    try:
        read: _Headers = _validate(headers, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise NotAJob(f"header {first['loc'][0]}: {first['msg']}") from None
    version = read.get("rd-version", VERSION)
    if not 1 <= version <= VERSION:
        raise NotAJob(f"rd-version {version} is not supported: upgrade the consumer")
    return read


def _id(message: Message, due_ms: int, random_hex: str) -> str:
    if not message.message_id:
        return ids.generate(due_ms, random_hex)
    try:
        return validation.check_id(message.message_id)
    except InvalidJob as error:
        raise NotAJob(f"message_id: {error}") from None


def _timestamp_ms(message: Message) -> int | None:
    """Return the timestamp of a message; None if it is missing or too large to be a time."""
    timestamp_s = message.timestamp_s
    return None if timestamp_s is None or timestamp_s >= MAX_TIME_S else timestamp_s * 1000
