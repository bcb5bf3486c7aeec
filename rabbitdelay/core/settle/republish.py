"""Copies: the messages that a job's message turns into when it is given back, buried or kicked.

Three rules this file owns:

1. A copy is a fresh message: nothing that brokers add on the way goes with it, whatever its putter
   added does. What is not a job is carried along as it is.
2. Why it failed is in its headers, bounded, where a person sees it in the management UI.
3. The dates of a copy come from its putter, never from the clock of a consumer: by `rd-due` and
   `rd-known` a consumer decides whether it still knows every delete of the job.
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
    """What the headers of a buried message say."""

    reason: str
    buried_ms: int | None = None
    """When, in milliseconds since 1970."""
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    """Where the last error was raised, as Python prints it."""


@dataclass(frozen=True, slots=True)
class Dates:
    """When a copy is due, and up to when consumers keep every delete of it."""

    due_ms: int
    known_ms: int
    is_to_be_known: bool = False
    """Whether a record must let its id be known for longer before the copy is published."""


def dates(message: Message, due_ms: int, later_ms: int) -> Dates:
    """Return the dates of a copy that is due some time after the message was.

    A copy that is due long after what is known of its job would make consumers read the whole log
    of deletes. For such a one, a record lets the id be known for longer.
    """
    known = known_ms(message)
    known = due_ms if known is None else known
    later = min(due_ms + later_ms, MAX_MS)
    is_long = later - known > LONG_MS
    return Dates(later, later if is_long else known, is_long)


def again(message: Message, *, attempt: int, dates: Dates, failure: Failure | None) -> Message:
    """The copy that is tried again."""
    # Without its grave: a person may have moved it here by hand, in the management UI.
    headers = _without(fresh_headers(message.headers), (*_OF_GRAVES, KNOWN))
    headers |= {"rd-attempt": attempt, DUE: dates.due_ms} | _failure_headers(failure)
    if dates.known_ms < dates.due_ms:
        headers[KNOWN] = dates.known_ms
    return replace(message, headers=headers)


def buried(message: Message, *, reason: str, now_ms: int, failure: Failure | None) -> Message:
    """The copy that is kept for a person."""
    headers = _without(fresh_headers(message.headers), _OF_GRAVES)
    headers |= {REASON: bounded(reason), BURIED: now_ms} | _failure_headers(failure)
    if failure is not None and failure.traceback:
        headers[TRACEBACK] = bounded_traceback(failure.traceback)
    return replace(message, headers=headers)


def without_traceback(message: Message) -> Message:
    """Return a buried copy without its traceback, where there is no room for one."""
    return replace(message, headers=_without(message.headers, (TRACEBACK,)))


def kicked(message: Message, *, now_ms: int) -> Message:
    """The copy of a buried message that is ready again: its id and body, attempt 1."""
    headers = _without(fresh_headers(message.headers), _OF_GRAVES + _OF_FAILURES)
    known = known_ms(message)
    if known is not None:
        headers[KNOWN] = known
    return replace(message, headers=headers | {"rd-attempt": 1, DUE: now_ms})


def read_grave(headers: Mapping[str, Any]) -> Grave:
    """Why a message was buried: as our header says, or as the broker's own record does."""
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
    "delivery_limit": "its consumers died with it until the broker's delivery limit",
    "rejected": "a consumer rejected it",
}


def _brokers_reason(headers: Mapping[str, Any]) -> str:
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    reason = newest.get("reason") if isinstance(newest, Mapping) else None
    return _BROKERS_REASONS.get(str(reason), f"dead-lettered: {reason}" if reason else "unknown")
