"""Answers: what a webhook's HTTP status means for the job.

=====================================  ==================================================
2xx                                    the job is finished
410 Gone                               it is buried
429 and 503 with a usable Retry-After  it is tried again when that says, within a day
any other                              it is tried again after its backoff
=====================================  ==================================================
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from rabbitdelay.errors import ActionFailed, Bury

MAX_RETRY_AFTER_SECONDS = 86_400.0
MAX_SHOWN = 200
_WAITING = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_SECONDS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    retry_after: str | None = None
    location: str | None = None
    beginning: bytes = b""
    """Of the body."""


def judge(answer: Answer, *, origin: str, now: datetime) -> None:
    """Return when the job is finished, and raise what becomes of it otherwise."""
    if answer.status // 100 == 2:  # noqa: PLR2004 - the whole class
        return
    text = f"{origin} says {_status(answer)}{_details(answer)}"
    if answer.status == HTTPStatus.GONE:
        raise Bury(text)
    is_waiting = answer.status in _WAITING and answer.retry_after is not None
    delay = retry_after_seconds(answer.retry_after or "", now) if is_waiting else None
    raise ActionFailed(text, delay=delay)


def retry_after_seconds(value: str, now: datetime) -> float | None:
    """Return how long a Retry-After asks to wait; None when it cannot be read or is no wait."""
    text = value.strip()
    wait_seconds = float(text) if _SECONDS.fullmatch(text) else _seconds_until(text, now)
    return min(wait_seconds, MAX_RETRY_AFTER_SECONDS) if wait_seconds > 0 else None


def _seconds_until(http_date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(http_date)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - now).total_seconds()


def _status(answer: Answer) -> str:
    try:
        return f"{answer.status} {HTTPStatus(answer.status).phrase}"
    except ValueError:
        return str(answer.status)


def _details(answer: Answer) -> str:
    if answer.status // 100 == 3:  # noqa: PLR2004 - the whole class
        location = shown((answer.location or "elsewhere").partition("?")[0])
        return f", to {location}: redirects are not followed, so give the URL it leads to"
    beginning = shown(answer.beginning.decode(errors="replace"))
    return f": {beginning}" if beginning else ""


def shown(text: str) -> str:
    """The beginning of a text from elsewhere, on one line, without control characters."""
    line = " ".join(text[: MAX_SHOWN * 4].split())
    clean = "".join(letter if letter.isprintable() else "·" for letter in line)
    return clean if len(clean) <= MAX_SHOWN else f"{clean[: MAX_SHOWN - 1]}…"
