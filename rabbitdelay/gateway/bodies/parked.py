"""Parked jobs as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi.responses import Response

from rabbitdelay.actions.job_facts import iso_time
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.parked.parked_job import ParkedJob
from rabbitdelay.core.parked.unrouted import UnroutedJob
from rabbitdelay.gateway.bodies import answers
from rabbitdelay.models import JSON


def listing(
    facts: Iterable[Mapping[str, Any]], jobs: Sequence[ParkedJob], total: int, *, bodies: bool
) -> Response:
    """Return a list of parked jobs, with their bodies if they are asked for."""
    parts = [
        answers.spliced(fact, job.payload, job.content_type) if bodies else answers.encoded(fact)
        for fact, job in zip(facts, jobs, strict=True)
    ]
    content = b'{"total":%d,"jobs":[%b]}' % (total, b",".join(parts))
    return Response(content, media_type=JSON)


def buried_facts(job: BuriedJob) -> dict[str, Any]:
    """Return the facts of a buried job."""
    return _facts(job) | {
        "topic": job.topic,
        "buried": _time(job.buried_ms),
        "reason": job.reason,
        "error": job.error,
        "error_type": job.error_type,
    }


def unrouted_facts(job: UnroutedJob) -> dict[str, Any]:
    """Return the facts of an unrouted job."""
    return _facts(job) | {
        "topic": job.topic,
        "exchange": job.exchange,
        "routing_key": job.routing_key,
        "why": job.why,
        "remaining": job.remaining_ms / 1000,
    }


def _facts(job: ParkedJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "attempt": job.attempt,
        "put": _time(job.put_ms),
        "due": _time(job.due_ms),
        "content_type": job.content_type,
        "body_bytes": len(job.payload),
    }


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_time(time_ms)
