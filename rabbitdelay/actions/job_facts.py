"""The held job: what an action may know of the job it is called with."""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class HeldJob(Protocol):
    """A job that this consumer holds, for at most its ttr."""

    @property
    def topic(self) -> str:
        """The kind of job."""

    @property
    def id(self) -> str:
        """Its name: any text."""

    @property
    def token(self) -> str:
        """Random, one per put; empty when another program put it without one."""

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""

    @property
    def max_attempts(self) -> int | None:
        """How often it may be tried; None is the topic's default."""

    @property
    def put_ms(self) -> int:
        """When it was put, in milliseconds since 1970."""

    @property
    def due_ms(self) -> int:
        """When it was due, in milliseconds since 1970."""

    @property
    def ttr_ms(self) -> int | None:
        """How long one consumer may hold it; None is the topic's default."""

    @property
    def payload(self) -> bytes:
        """The body as it travelled."""

    @property
    def content_type(self) -> str:
        """What the body is."""

    @property
    def callback(self) -> str | None:
        """The URL that whoever put the job wants called: any text."""

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers that its putter gave it."""

    @property
    def time_left(self) -> float:
        """Seconds until the deadline; none are left when the lease is lost."""

    @property
    def lateness(self) -> float:
        """Seconds from its due time until it was received; never negative."""

    def on_lost(self, callback: Callable[[], None], /) -> None:
        """Call back, on another thread, when the lease is lost; at once if it already is.

        The callback must not wait: that thread keeps the leases of other jobs too.
        """


def headers_as_json(job: HeldJob) -> dict[str, Any]:
    """Return a job's headers as JSON has them: bytes in base64, NaN and Infinity as text."""
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


def moment(milliseconds: int) -> str:
    """A time as people and programs read it; whatever comes after the year 9999 is its end."""
    time = _EPOCH + timedelta(milliseconds=min(milliseconds, _LAST_MS))
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
