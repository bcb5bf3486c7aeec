"""The properties of a job that an action can use."""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class ActionJob(Protocol):
    """A job that is reserved by this consumer for at most its ttr."""

    @property
    def topic(self) -> str:
        """Topic of the job."""

    @property
    def id(self) -> str:
        """Id of the job, arbitrary text."""

    @property
    def token(self) -> str:
        """Random token, one per put; empty if another program put the job without one."""

    @property
    def attempt(self) -> int:
        """Number of this attempt, starting at 1."""

    @property
    def max_attempts(self) -> int | None:
        """Maximum number of attempts; None means the topic's default."""

    @property
    def put_ms(self) -> int:
        """Put time in milliseconds since 1970."""

    @property
    def due_ms(self) -> int:
        """Due time in milliseconds since 1970."""

    @property
    def ttr_ms(self) -> int | None:
        """Time to run in milliseconds; None means the topic's default."""

    @property
    def payload(self) -> bytes:
        """Body as raw bytes."""

    @property
    def content_type(self) -> str:
        """Media type of the body."""

    @property
    def callback(self) -> str | None:
        """Callback URL chosen by the putter, arbitrary text."""

    @property
    def headers(self) -> Mapping[str, Any]:
        """Headers set by the putter."""

    @property
    def time_left(self) -> float:
        """Seconds until the deadline; 0 once the lease is lost."""

    @property
    def lateness(self) -> float:
        """Seconds between the due time and the receipt of the job; never negative."""

    def on_lost(self, callback: Callable[[], None], /) -> None:
        """Call `callback` on another thread when the lease is lost, or now if it already is.

        The callback must not block, because that thread maintains the leases of other jobs too.
        """


def headers_as_json(job: ActionJob) -> dict[str, Any]:
    """Return a job's headers as JSON values: bytes as base64, NaN and Infinity as text."""
    return {name: _as_json(value) for name, value in job.headers.items()}


def _as_json(value: object) -> object:
    match value:
        case Mapping():
            return {str(name): _as_json(item) for name, item in value.items()}
        case list() | tuple():
            return [_as_json(item) for item in value]
        case bytes():
            return b64encode(value).decode()
        case float():
            return value if math.isfinite(value) else str(value)
    return value


def iso_time(milliseconds: int) -> str:
    """Return a time in ISO 8601; a time after the year 9999 becomes the end of that year."""
    time = _EPOCH + timedelta(milliseconds=min(milliseconds, _LAST_MS))
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
