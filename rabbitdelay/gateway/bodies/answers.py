"""The answers: jobs as JSON, with their bodies spliced in byte for byte."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from fastapi.responses import Response

from rabbitdelay.actions.job_facts import headers_as_json, iso_time
from rabbitdelay.core.administration.counts import Statistics, TopicCounts
from rabbitdelay.core.work.responses import Response as JobResponse
from rabbitdelay.gateway.bodies import raw_json
from rabbitdelay.gateway.leases.held_jobs import HeldJob
from rabbitdelay.gateway.problems import InvalidRequest
from rabbitdelay.models import BYTES, JSON, Job, media_type

_COMPACT = (",", ":")
# Headers of other programs may have AMQP types that JSON lacks.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=_COMPACT, allow_nan=False, default=str)
_ASCII_ENCODER = json.JSONEncoder(separators=_COMPACT, allow_nan=False, default=str)


def as_json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a JSON value."""
    return Response(encoded(value), status, headers, media_type=JSON)


def encoded(value: object) -> bytes:
    """Return a value as JSON in UTF-8; half of a surrogate pair becomes an escape."""
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        return _ASCII_ENCODER.encode(value).encode()


def nothing() -> Response:
    """Return a response without content."""
    return Response(status_code=204)


def put_job(job: Job, root_path: str = "") -> Response:
    """Return the answer of a put, with the path of the job."""
    location = f"{root_path}/v1/jobs/{quote(job.id, safe='')}"
    return as_json(put_facts(job), 201, {"Location": location})


def put_jobs(jobs: Iterable[Job]) -> Response:
    """Return the answer of many puts."""
    return as_json({"jobs": list(map(put_facts, jobs))}, 201)


@lru_cache(maxsize=256)
def _time(milliseconds: int) -> str:
    """Return a time in ISO 8601. The jobs of a batch have few different times."""
    return iso_time(milliseconds)


def put_facts(job: Job) -> dict[str, Any]:
    """Return the facts of a job that was put."""
    return {
        "id": job.id,
        "topic": job.topic,
        "put": _time(job.put_ms),
        "due": _time(job.due_ms),
    }


def held_jobs(found: Iterable[HeldJob]) -> Response:
    """Return the answer of a pop that found jobs."""
    content = b'{"jobs":[' + b",".join(map(_held_job, found)) + b"]}"
    return Response(content, media_type=JSON)


def held_job_raw(found: HeldJob) -> Response:
    """Return the raw body of a job, with its facts in headers."""
    facts = _facts(found)
    headers = {_header(name): _text(value) for name, value in facts.items()}
    response = Response(found.job.payload, headers=headers)
    response.headers["Content-Type"] = _one_line(found.job.content_type)
    return response


def wants_raw(accept: str, max: int) -> bool:
    """Whether a pop is to answer with the raw body of one job.

    Raises:
        InvalidRequest: Several jobs are asked for, which do not fit into one raw body.
    """
    kinds = {media_type(kind) for kind in accept.split(",")}
    if BYTES not in kinds:
        return False
    if max != 1:
        raise InvalidRequest(f"max: must be 1 with Accept: {BYTES}")
    return True


def job_response(response: JobResponse) -> Response:
    """Return the response of a job's handler."""
    members = {"id": response.id, "content_type": response.content_type}
    content = spliced(members, response.payload, response.content_type)
    return Response(content, media_type=JSON)


def topic(found: Statistics) -> Response:
    """Return the counts of one topic."""
    return as_json(_topic(found.topics[0]))


def statistics(found: Statistics, *, delayed: bool) -> Response:
    """Return the counts of all topics."""
    members: dict[str, Any] = {
        "topics": list(map(_topic, found.topics)),
        "unrouted": found.unrouted,
    }
    if delayed:
        members["delayed"] = [
            {"due_within": count.due_within_ms / 1000, "jobs": count.jobs}
            for count in found.delayed
        ]
    return as_json(members)


def _topic(counts: TopicCounts) -> dict[str, Any]:
    return asdict(counts)


def body_members(payload: bytes, content_type: str) -> bytes:
    """Return the member `body`, or `body_base64` if the body is neither JSON nor text."""
    kind = media_type(content_type)
    if kind == JSON or kind.endswith("+json"):
        if raw_json.is_json(payload):
            return b'"body":' + payload
    elif kind.startswith("text/"):
        try:
            return b'"body":' + encoded(payload.decode())
        except UnicodeDecodeError:
            pass
    return b'"body_base64":"' + b64encode(payload) + b'"'


def spliced(members: Mapping[str, Any], payload: bytes, content_type: str) -> bytes:
    """Return a JSON object with these members and the body."""
    return encoded(members)[:-1] + b"," + body_members(payload, content_type) + b"}"


def _held_job(found: HeldJob) -> bytes:
    job = found.job
    members = _facts(found) | {"content_type": job.content_type, "headers": headers_as_json(job)}
    return spliced(members, job.payload, job.content_type)


def _facts(found: HeldJob) -> dict[str, Any]:
    job = found.job
    return {
        "lease": found.lease,
        "topic": job.topic,
        "id": job.id,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "put": iso_time(job.put_ms),
        "due": iso_time(job.due_ms),
        "ttr": job.ttr.total_seconds(),
        "time_left": round(job.time_left, 3),
        "redeliveries": job.redeliveries,
        "callback": job.callback,
    }


def _header(name: str) -> str:
    return f"Rabbitdelay-{name.replace('_', '-').title()}"


def _text(value: object) -> str:
    """Return a value of a header: in ASCII, percent-encoded where it is not."""
    return "" if value is None else quote(str(value), safe=" !#$&'()*+,/:;=?@[]~")


def _one_line(content_type: str) -> str:
    """Return a content type that can be a header; another program may have put any text."""
    is_safe = content_type.isascii() and content_type.isprintable()
    return content_type if is_safe else "application/octet-stream"
