"""Records of the log of deletes, as values and as JSON that any program can write.

    {"delete": ["order-17", "order-18"], "time": 1731500000000}
    {"delete": [["order-17", "4f5c…", 1731500000000]], "time": …}   one token of an id, and its due
    {"keep": ["order-17", "4f5c…"], "time": …, "due": …, "instead_of": ["9a0b…"]}
    {"purge": "order.close", "time": …}
    {"pause": "order.close"}   {"resume": "order.close"}
    {"horizon": 31536000000}   {"fence": "8c1d…"}   {"snapshot": 1731500000000}

All times are milliseconds since 1970. `due` is the time at which the last of the deleted jobs is
due. A delete without it is kept for as long as any job with a chosen id may be delayed.

This file owns two rules:

1. A consumer must not guess: a record with a higher `version` stops it. A body that is not a record
   is skipped, so that one program's mistake does not stop every consumer.
2. To add a kind of record, raise VERSION, and write the new kind with it. Old kinds keep theirs.
"""

import json
from dataclasses import dataclass
from typing import Any

from rabbitdelay.errors import RabbitDelayError

VERSION = 1
MAX_MS = 1 << 48
"""A time in the year 10889. A later one must have been written in another unit."""


class NotARecord(RabbitDelayError, ValueError):
    """A body in the log is not a record."""


class RecordTooNew(RabbitDelayError):
    """A record in the log has a version that this consumer does not know."""


@dataclass(frozen=True, slots=True)
class Exact:
    """One token of an id."""

    id: str
    token: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete ids, with all jobs that were put at or before the time, or single tokens of ids."""

    jobs: tuple[str | Exact, ...]
    time_ms: int
    due_ms: int | None = None
    """Latest due time of the deleted jobs; None if unknown."""

    @property
    def is_by_time(self) -> bool:
        """Whether the record would also delete a job put later in the same millisecond."""
        return any(isinstance(job, str) for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep only one token of an id, among all jobs that were put until then."""

    id: str
    token: str
    time_ms: int
    """Put time of the job that is kept."""
    due_ms: int
    """Latest due time of the kept job and those it replaces; the id is known until then."""
    instead_of: tuple[str, ...] = ()
    """Tokens that are deleted whenever they were put."""


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete all jobs of a topic that were put at or before the time."""

    topic: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class Pause:
    """From here on, do not deliver the jobs of a topic."""

    topic: str
    since: int | None = None
    """Position of the pause that this one repeats, so that retention does not lose it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """From here on, deliver the jobs of a topic again."""

    topic: str


@dataclass(frozen=True, slots=True)
class Horizon:
    """From here on, jobs with chosen ids may be put with delays of up to this."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Fence:
    """A consumer that reads its own fence has read everything before it."""

    nonce: str


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot was taken."""

    time_ms: int


Record = Delete | Keep | Purge | Pause | Resume | Horizon | Fence | SnapshotTaken


def known_until(id: str, due_ms: int) -> Delete:
    """Return a record that deletes nothing, and keeps an id known until a job of it is due.

    Needed for an id whose own time is earlier, because its deletes would be forgotten too soon.
    """
    return Delete((id,), 0, due_ms)


def describe(record: Record) -> str:
    """Return what a record does, for errors: `delete of a and 2 more`."""
    match record:
        case Delete(jobs=jobs):
            ids = [job if isinstance(job, str) else job.id for job in jobs]
            more = f" and {len(ids) - 1:,} more" if len(ids) > 1 else ""
            return f"delete of {ids[0]}{more}" if ids else "delete"
        case Keep(id=id):
            return f"delete of earlier jobs with id {id}"
        case Purge(topic=topic) | Pause(topic=topic) | Resume(topic=topic):
            return f"{type(record).__name__.lower()} of topic {topic}"
    return "record of the log of deletes"


def encode(record: Record) -> bytes:
    """Return a record as JSON."""
    fields = {name: value for name, value in _fields(record).items() if value is not None}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode(body: bytes) -> Record:
    """Return the record in a body; raise NotARecord or RecordTooNew if there is none."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotARecord(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise NotARecord("not an object")
    if _integer(fields.get("version", VERSION)) > VERSION:
        raise RecordTooNew(
            f"the log of deletes contains a record of version {fields['version']}, but this "
            f"consumer supports version {VERSION}: upgrade the consumer"
        )
    return _decode(fields)


def _fields(record: Record) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind
    match record:
        case Delete(jobs, time_ms, due_ms):
            return {"delete": [_job_field(item) for item in jobs], "time": time_ms, "due": due_ms}
        case Keep(id, token, time_ms, due_ms, instead_of):
            fields = {"keep": [id, token], "time": time_ms, "due": due_ms}
            return fields | {"instead_of": list(instead_of) or None}
        case Purge(topic, time_ms):
            return {"purge": topic, "time": time_ms}
        case Pause(topic, since):
            return {"pause": topic, "since": since}
        case Resume(topic):
            return {"resume": topic}
        case Horizon(delay_ms):
            return {"horizon": delay_ms}
        case Fence(nonce):
            return {"fence": nonce}
    return {"snapshot": record.time_ms}


def _job_field(job: str | Exact) -> object:
    return job if isinstance(job, str) else [job.id, job.token, job.due_ms]


def _decode(fields: dict[str, Any]) -> Record:  # noqa: PLR0911 - one for each kind
    match fields:
        case {"delete": list(jobs), "time": time}:
            due = fields.get("due")
            due_ms = None if due is None else _moment(due)
            return Delete(tuple(map(_read_job, jobs)), _moment(time), due_ms)
        case {"keep": [id, token], "time": time, "due": due}:
            instead_of = _texts(fields.get("instead_of", []))
            return Keep(_text(id), _text(token), _moment(time), _moment(due), instead_of)
        case {"purge": topic, "time": time}:
            return Purge(_text(topic), _moment(time))
        case {"pause": topic}:
            since = fields.get("since")
            return Pause(_text(topic), None if since is None else _integer(since))
        case {"resume": topic}:
            return Resume(_text(topic))
        case {"horizon": delay}:
            return Horizon(_moment(delay))
        case {"fence": nonce}:
            return Fence(_text(nonce))
        case {"snapshot": time}:
            return SnapshotTaken(_moment(time))
    raise NotARecord(f"unknown kind of record: {', '.join(map(ascii, fields))}")


def _read_job(value: object) -> str | Exact:
    match value:
        case str(id):
            return _text(id)
        case [id, token, due]:
            return Exact(_text(id), _text(token), _moment(due))
    raise NotARecord(f"not an id: {value!r}")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise NotARecord(f"not a list: {value!r}")
    return tuple(map(_text, value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise NotARecord(f"not text: {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotARecord(f"not valid Unicode text: {value!r}") from None
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotARecord(f"not an integer: {value!r}")
    return value


def _moment(value: object) -> int:
    """Return a time in milliseconds. One in microseconds would delete all future jobs."""
    moment = _integer(value)
    if not 0 <= moment < MAX_MS:
        raise NotARecord(f"not a time in milliseconds since 1970: {moment}")
    return moment
