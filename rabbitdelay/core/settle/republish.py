"""The copy of a message with which a job is retried, buried or kicked.

This file owns three rules:

1. A copy is a fresh message: it has all headers and properties of the original except those that
   brokers add in transit. A message that is not a valid job is copied unchanged.
2. The headers of a copy say why the attempt failed, with bounded length, for the management UI.
3. The times in a copy come from the clock of the client that put the job, never from that of a
   consumer, because consumers use `rd-due` and `rd-known` to decide whether they still know every
   delete of the job.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rabbitdelay.core.deletes.tombstone_table import MAX_MS
from rabbitdelay.core.deletes.tombstones import LONG_MS
from rabbitdelay.core.jobs.envelope import Message, fresh_headers, known_ms
from rabbitdelay.core.settle.failure import MAX_KIND, Failure, bounded, bounded_traceback

DUE, KNOWN = "rd-due", "rd-known"
ERROR, ERROR_TYPE = "rd-error", "rd-error-type"
REASON, BURIED, TRACEBACK = "rd-reason", "rd-buried", "rd-traceback"
_OF_GRAVES = (REASON, BURIED, TRACEBACK)
_OF_FAILURES = (ERROR, ERROR_TYPE)


@dataclass(frozen=True, slots=True)
class Grave:
    """The reason and the time of a burial, read from the headers of the buried message."""

    reason: str
    buried_ms: int | None = None
    """Time of the burial, in milliseconds since 1970."""
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    """Traceback of the last error, as Python prints it."""


@dataclass(frozen=True, slots=True)
class Dates:
    """Due time of a copy, and the time until which consumers keep every delete of it."""

    due_ms: int
    known_ms: int
    is_to_be_known: bool = False
    """Whether a record must be written before the copy is published, so that its id is known for
    longer."""


def dates(message: Message, due_ms: int, later_ms: int) -> Dates:
    """Return the times of a copy that is due `later_ms` after the message was.

    A copy that is due long after the time until which deletes of its job are kept would make
    consumers read the whole log of deletes. For such a copy, a record extends how long its id is
    known.
    """
    known = known_ms(message)
    known = due_ms if known is None else known
    later = min(due_ms + later_ms, MAX_MS)
    is_long = later - known > LONG_MS
    return Dates(later, later if is_long else known, is_long)


def again(message: Message, *, attempt: int, dates: Dates, failure: Failure | None) -> Message:
    """Return the copy for the next attempt."""
    # A message that was moved here in the management UI still has the headers of its burial.
    headers = _without(fresh_headers(message.headers), (*_OF_GRAVES, KNOWN))
    headers |= {"rd-attempt": attempt, DUE: dates.due_ms} | _failure_headers(failure)
    if dates.known_ms < dates.due_ms:
        headers[KNOWN] = dates.known_ms
    return replace(message, headers=headers)


def buried(message: Message, *, reason: str, now_ms: int, failure: Failure | None) -> Message:
    """Return the copy for the buried queue."""
    headers = _without(fresh_headers(message.headers), _OF_GRAVES)
    headers |= {REASON: bounded(reason), BURIED: now_ms} | _failure_headers(failure)
    if failure is not None and failure.traceback:
        headers[TRACEBACK] = bounded_traceback(failure.traceback)
    return replace(message, headers=headers)


def without_traceback(message: Message) -> Message:
    """Return a buried copy without its traceback, for a message that would be too large."""
    return replace(message, headers=_without(message.headers, (TRACEBACK,)))


def kicked(message: Message, *, now_ms: int) -> Message:
    """Return the copy that makes a buried job ready again, with attempt 1."""
    headers = _without(fresh_headers(message.headers), _OF_GRAVES + _OF_FAILURES)
    known = known_ms(message)
    if known is not None:
        headers[KNOWN] = known
    return replace(message, headers=headers | {"rd-attempt": 1, DUE: now_ms})


def read_grave(headers: Mapping[str, Any]) -> Grave:
    """Return why a message was buried, according to our headers or else the broker's record."""
    reason, buried_ms = headers.get(REASON), headers.get(BURIED)
    error, error_type = headers.get(ERROR), headers.get(ERROR_TYPE)
    traceback = headers.get(TRACEBACK)
    return Grave(
        reason if isinstance(reason, str) else _brokers_reason(headers),
        buried_ms if isinstance(buried_ms, int) else None,
        error if isinstance(error, str) else None,
        error_type if isinstance(error_type, str) else None,
        traceback if isinstance(traceback, str) else None,
    )


def _without(headers: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name not in names}


def _failure_headers(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {}
    return {ERROR: bounded(failure.text), ERROR_TYPE: bounded(failure.kind, MAX_KIND)}


_BROKERS_REASONS = {
    "delivery_limit": "its consumers died until the broker's delivery limit was reached",
    "rejected": "a consumer rejected it",
}


def _brokers_reason(headers: Mapping[str, Any]) -> str:
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    reason = newest.get("reason") if isinstance(newest, Mapping) else None
    return _BROKERS_REASONS.get(str(reason), f"dead-lettered: {reason}" if reason else "unknown")
