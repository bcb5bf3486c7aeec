"""Map the HTTP status of a webhook's response to the job's outcome.

=====================================  ====================================================
2xx                                    the job is finished
410 Gone                               the job is buried
429 and 503 with a valid Retry-After   the job is retried after that time, at most one day
any other                              the job is retried after its backoff
=====================================  ====================================================
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from rabbitdelay.errors import ActionFailed, Bury

MAX_RETRY_AFTER_SECONDS = 86_400.0
MAX_EXCERPT = 200
_RETRY_AFTER_STATUSES = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_SECONDS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """The parts of an HTTP response that decide the job's outcome."""

    status: int
    retry_after: str | None = None
    location: str | None = None
    beginning: bytes = b""
    """Start of the body."""


def raise_for_status(response: WebhookResponse, *, origin: str, now: datetime) -> None:
    """Raise `Bury` or `ActionFailed` unless the status is 2xx."""
    if response.status // 100 == 2:  # noqa: PLR2004 - the whole class
        return
    text = f"{origin} returned {_status(response)}{_details(response)}"
    if response.status == HTTPStatus.GONE:
        raise Bury(text)
    has_delay = response.status in _RETRY_AFTER_STATUSES and response.retry_after is not None
    delay = retry_after_seconds(response.retry_after or "", now) if has_delay else None
    raise ActionFailed(text, delay=delay)


def retry_after_seconds(value: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After value; None if it is invalid or not positive."""
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


def _status(response: WebhookResponse) -> str:
    try:
        return f"{response.status} {HTTPStatus(response.status).phrase}"
    except ValueError:
        return str(response.status)


def _details(response: WebhookResponse) -> str:
    if response.status // 100 == 3:  # noqa: PLR2004 - the whole class
        location = printable_excerpt((response.location or "unknown").partition("?")[0])
        return f" (location: {location}): redirects are not followed; use the final URL"
    beginning = printable_excerpt(response.beginning.decode(errors="replace"))
    return f": {beginning}" if beginning else ""


def printable_excerpt(text: str) -> str:
    """Return the start of untrusted text on one line, without control characters."""
    line = " ".join(text[: MAX_EXCERPT * 4].split())
    clean = "".join(letter if letter.isprintable() else "·" for letter in line)
    return clean if len(clean) <= MAX_EXCERPT else f"{clean[: MAX_EXCERPT - 1]}…"
