"""Validate the arguments of put, before anything is sent.

The result is a Job; an invalid argument raises InvalidJob, with the value and the rule.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from rabbitdelay import duration
from rabbitdelay.core.jobs import headers, ids
from rabbitdelay.core.topology import ladder
from rabbitdelay.errors import InvalidConfiguration, InvalidJob
from rabbitdelay.models import BYTES, JSON, TEXT, Job, JobSpec

MIN_TTR_MS = ladder.SECOND_MS
MAX_TTR_MS = ladder.DAY_MS
MAX_NAME_BYTES = 200
MAX_CALLBACK_BYTES = 2_000
MAX_ATTEMPTS = 1_000_000
MAX_BACKOFF_MS = 30 * ladder.DAY_MS
_SHORT = 255  # maximum length of an AMQP short string, in bytes
_DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
"""RabbitMQ closes the channel on which a message with this reply_to is published."""
DEFAULT_MAX_BODY_BYTES = 1024 * 1024

_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HALF = ids.RANDOM_HEX_DIGITS
RANDOM_HEX_DIGITS = 2 * _HALF


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one namespace, in addition to those that are the same for all."""

    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    max_delay_ms: int = ladder.MAX_DELAY_MS


def check_max_delay_ms(max_delay: float | timedelta | None) -> int:
    """Return a namespace's longest delay in milliseconds; raise InvalidConfiguration if invalid."""
    if max_delay is None:
        return ladder.MAX_DELAY_MS
    try:
        return ladder.check(duration.milliseconds(max_delay, what="max_delay"))
    except InvalidJob as error:
        raise InvalidConfiguration(f"max_delay: {error}") from None


def check_timeout(value: float, what: str = "timeout") -> float:
    """Return a timeout in seconds; raise InvalidConfiguration if invalid."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= 0:
        raise InvalidConfiguration(f"{what} must be a number of seconds, at least 0, not {value!r}")
    return value


def check_setting(value: int, what: str) -> int:
    """Return an integer of at least 1; raise InvalidConfiguration if it is not one."""
    try:
        return check_count(value, what, sys.maxsize)
    except InvalidJob as error:
        raise InvalidConfiguration(str(error)) from None


def make_job(
    spec: JobSpec, *, now_ms: int, random_hex: str, bounds: Bounds, attempt: int = 1
) -> Job:
    """Return the Job for a spec; `random_hex` has RANDOM_HEX_DIGITS random hex digits."""
    if not isinstance(spec, JobSpec):
        raise InvalidJob(f"a job to put must be a JobSpec, not {type(spec).__name__}")
    delay_ms = _delay_ms(spec, now_ms, bounds)
    payload, content_type = encode_body(spec.body, spec.content_type, bounds.max_body_bytes)
    due_ms = now_ms + delay_ms
    return Job(
        check_topic(spec.topic),
        ids.generate(due_ms, random_hex[_HALF:]) if spec.id is None else check_id(spec.id),
        random_hex[:_HALF],
        now_ms,
        due_ms,
        _ttr_ms(spec.ttr),
        payload,
        content_type,
        attempt,
        _max_attempts(spec.max_attempts),
        _callback(spec.callback),
        _backoff_ms(spec.backoff, "backoff"),
        _backoff_ms(spec.backoff_max, "backoff_max"),
        _reply_to(spec.reply_to),
        headers.check(spec.headers),
    )


def same_at(job: Job, *, delay: float | timedelta, at: datetime | None) -> JobSpec:
    """Return the spec of the same job at another time."""
    return JobSpec(
        job.topic,
        job.payload,
        delay=delay,
        at=at,
        ttr=None if job.ttr_ms is None else job.ttr_ms / 1000,
        id=job.id,
        max_attempts=job.max_attempts,
        callback=job.callback,
        content_type=job.content_type,
        backoff=None if job.backoff_ms is None else job.backoff_ms / 1000,
        backoff_max=None if job.backoff_max_ms is None else job.backoff_max_ms / 1000,
        reply_to=job.reply_to,
        headers=job.headers,
    )


def check_topic(topic: str) -> str:
    """Return the topic; raise InvalidJob if invalid."""
    if not isinstance(topic, str) or not topic:
        raise InvalidJob(f"topic must be a non-empty str, not {topic!r}")
    if len(topic) > MAX_NAME_BYTES:
        raise InvalidJob(f"topic must be at most {MAX_NAME_BYTES} bytes, got {len(topic)}")
    if not _TOPIC.fullmatch(topic):
        raise InvalidJob(f"topic {topic!r} may only contain A-Z a-z 0-9 . _ -")
    return topic


def check_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several topics without duplicates; raise InvalidJob if one is invalid."""
    if not isinstance(topics, Iterable):
        raise InvalidJob(f"topics must be a str or a sequence of them, not {topics!r}")
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names:
        raise InvalidJob("topics is empty: give at least one topic")
    return tuple(dict.fromkeys(map(check_topic, names)))


def check_count(value: int, what: str, most: int) -> int:
    """Return an integer from 1 to `most`; raise InvalidJob if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidJob(f"{what} must be from 1 to {most:,}, not {value!r}")
    return value


def check_id(id: str) -> str:
    """Return the id; raise InvalidJob if invalid."""
    if not isinstance(id, str) or not id:
        raise InvalidJob(f"id must be a non-empty str, not {id!r}")
    try:
        length = len(id.encode())
    except UnicodeEncodeError:
        raise InvalidJob(f"id {id!r} is not valid Unicode text") from None
    if length > MAX_NAME_BYTES:
        raise InvalidJob(f"id must be at most {MAX_NAME_BYTES} bytes, got {length}")
    if "\x00" in id:
        raise InvalidJob("id must not contain a NUL character")
    return id


def encode_body(body: object, content_type: str | None, max_bytes: int) -> tuple[bytes, str]:
    """Return the encoded body and its content type."""
    payload, natural_type = _payload(body)
    if len(payload) > max_bytes:
        raise InvalidJob(
            f"body must be at most {max_bytes:,} bytes, got {len(payload):,}: "
            "put a reference to it instead, or raise max_body_bytes (serve: --max-body)"
        )
    if content_type is None:
        return payload, natural_type
    if not _is_short_text(content_type):
        raise InvalidJob(f"content_type must be a str of 1 to {_SHORT} bytes, not {content_type!r}")
    return payload, content_type


def _payload(body: object) -> tuple[bytes, str]:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body), BYTES
    try:
        return (body.encode(), TEXT) if isinstance(body, str) else (_json(body), JSON)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidJob(
            f"body of type {type(body).__name__} is not JSON-serializable: {error}"
        ) from None


def _json(body: object) -> bytes:
    """Encode as strict JSON.

    NaN and Infinity are not JSON, and other readers could not parse them.
    """
    if isinstance(body, BaseModel):
        return body.model_dump_json().encode()
    payload = to_json(body)
    if b"NaN" in payload or b"Infinity" in payload:
        _refuse_not_a_number(body)
    return payload


def _refuse_not_a_number(body: object) -> None:
    """Raise ValueError if the body contains a float that is not finite.

    The text "NaN" is allowed.
    """
    if isinstance(body, float) and body - body != 0:
        raise ValueError(f"{body} is not a JSON number")
    if isinstance(body, dict):
        body = [*body.keys(), *body.values()]
    if isinstance(body, (list, tuple, set, frozenset)):
        for item in body:
            _refuse_not_a_number(item)


def check_delay_ms(delay: float | timedelta) -> int:
    """Return a delay in milliseconds, at least 0; raise InvalidJob if it is too long."""
    return ladder.check(max(0, duration.milliseconds(delay, what="delay")))


def _delay_ms(spec: JobSpec, now_ms: int, bounds: Bounds) -> int:
    if spec.at is None:
        delay_ms = check_delay_ms(spec.delay)
    elif spec.delay:
        raise InvalidJob("put takes either `delay` or `at`, not both")
    else:
        delay_ms = ladder.check(max(0, _unix_ms(spec.at) - now_ms))
    if delay_ms > bounds.max_delay_ms:
        raise InvalidJob(
            f"delay {duration.describe(delay_ms)} is longer than this namespace's max_delay of "
            f"{duration.describe(bounds.max_delay_ms)}"
        )
    return delay_ms


def _unix_ms(at: datetime) -> int:
    if not isinstance(at, datetime):
        raise InvalidJob(f"at must be a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise InvalidJob(
            f"at={at.isoformat()} has no time zone: pass an aware datetime, "
            "such as datetime(..., tzinfo=UTC)"
        )
    return duration.milliseconds(at - _EPOCH, what="at")


def _ttr_ms(ttr: float | timedelta | None) -> int | None:
    return None if ttr is None else check_ttr_ms(ttr)


def check_ttr_ms(ttr: float | timedelta) -> int:
    """Return a ttr in milliseconds; raise InvalidJob if it is out of range."""
    ttr_ms = duration.milliseconds(ttr, what="ttr")
    if not MIN_TTR_MS <= ttr_ms <= MAX_TTR_MS:
        raise InvalidJob(f"ttr must be from 1 second to 24 hours, got {ttr_ms / 1000:g} s")
    return ttr_ms


def _max_attempts(value: int | None) -> int | None:
    if value is None:
        return None
    return check_count(value, "max_attempts", MAX_ATTEMPTS)


def _callback(url: str | None) -> str | None:
    if url is None:
        return None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidJob(f"callback must be an http or https URL, not {url!r}")
    if not 0 < _utf8_bytes(url) <= MAX_CALLBACK_BYTES:
        raise InvalidJob(f"callback must be a URL of at most {MAX_CALLBACK_BYTES} bytes")
    return url


def _backoff_ms(value: float | timedelta | None, what: str) -> int | None:
    if value is None:
        return None
    backoff_ms = duration.milliseconds(value, what=what)
    if not 0 <= backoff_ms <= MAX_BACKOFF_MS:
        raise InvalidJob(f"{what} must be from 0 to 30 days, got {backoff_ms / 1000:g} s")
    return backoff_ms


def _reply_to(queue: str | None) -> str | None:
    if queue is None:
        return None
    if not _is_short_text(queue):
        raise InvalidJob(f"reply_to must be a queue name of 1 to {_SHORT} bytes, not {queue!r}")
    if queue.startswith(_DIRECT_REPLY_TO):
        raise InvalidJob(
            f"reply_to must not be {queue!r}: RabbitMQ's direct reply-to does not work for jobs, "
            "because it ends with the channel of the put; use reply=True or a queue name"
        )
    return queue


def _is_short_text(value: object) -> bool:
    return isinstance(value, str) and 0 < _utf8_bytes(value) <= _SHORT


def _utf8_bytes(text: str) -> int:
    """Return the length of a text in UTF-8, or 0 for a text with a lone surrogate."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0
