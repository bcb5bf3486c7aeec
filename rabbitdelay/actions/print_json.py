"""The print action: `--print` writes each job as one line of JSON."""

import json
import math
import sys
import threading
from base64 import b64encode
from typing import Any, TextIO

from rabbitdelay.actions.job_facts import headers_as_json, iso_time
from rabbitdelay.engine.settle.leased_job import LeasedJob
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.models import JSON


class JobPrinter:
    """Prints each job as one line and flushes it, so that every finished job has been written."""

    def __init__(self, stream: TextIO | None = None) -> None:
        chosen: TextIO | None = stream or sys.stdout
        if chosen is None:
            raise InvalidConfiguration(
                "cannot print jobs because stdout is closed: redirect it to a file or pipe"
            )
        self._stream = chosen
        self._lock = threading.Lock()

    def __call__(self, job: LeasedJob) -> None:
        """Print the job; raise OSError if the reader has closed the stream."""
        line = _line(job, self._stream.encoding)
        with self._lock:
            self._stream.write(line)
            self._stream.flush()


def job_as_json(job: LeasedJob) -> dict[str, Any]:
    """Return a job as a JSON object.

    The body is included as JSON if it parses as JSON, else as text, else as `{"base64": …}`.
    """
    return {
        "topic": job.topic,
        "id": job.id,
        "attempt": job.attempt,
        "due": iso_time(job.due_ms),
        "lateness_ms": round(job.lateness * 1000),
        "content_type": job.content_type,
        "headers": headers_as_json(job),
        "body": _body(job),
    }


def _line(job: LeasedJob, encoding: str | None) -> str:
    """Return the job as a line of JSON, with escapes if the stream's encoding requires them."""
    value = job_as_json(job)
    line = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        line.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False) + "\n"
    return line


def _body(job: LeasedJob) -> Any:  # noqa: ANN401 - any JSON value
    try:
        text = job.payload.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(job.payload).decode()}
    media_type = job.content_type.partition(";")[0].strip().lower()
    return _value(text) if media_type == JSON else text


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the text's JSON value, or the text if it is not JSON or cannot be written again."""
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number")
    return number
