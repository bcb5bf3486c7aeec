"""Properties of a job in the form in which actions pass them on."""

import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from rabbitdelay.engine.settle.leased_job import LeasedJob

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def headers_as_json(job: LeasedJob) -> dict[str, Any]:
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
