"""The printing action: `--print`, one line of JSON for each job."""

import json
import math
import sys
import threading
from base64 import b64encode
from typing import Any, TextIO

from rabbitdelay.actions.job_facts import HeldJob, headers_as_json, moment
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.models import JSON


class JobPrinter:
    """Prints each job as a line, whole and flushed: a job that is finished has been written."""

    def __init__(self, stream: TextIO | None = None) -> None:
        chosen: TextIO | None = stream or sys.stdout
        if chosen is None:
            raise InvalidConfiguration("stdout is closed: there is nowhere to print jobs to")
        self._stream = chosen
        self._lock = threading.Lock()

    def __call__(self, job: HeldJob) -> None:
        """Print the job; an OSError when nobody reads any more."""
        line = _line(job, self._stream.encoding)
        with self._lock:
            self._stream.write(line)
            self._stream.flush()


def job_as_json(job: HeldJob) -> dict[str, Any]:
    """Return what programs are told of a job.

    The body is the JSON it is, else its text, else `{"base64": …}` when it is no text.
    """
    return {
        "topic": job.topic,
        "id": job.id,
        "attempt": job.attempt,
        "due": moment(job.due_ms),
        "lateness_ms": round(job.lateness * 1000),
        "content_type": job.content_type,
        "headers": headers_as_json(job),
        "body": _body(job),
    }


def _line(job: HeldJob, encoding: str | None) -> str:
    """A line of JSON that the stream can write: with escapes where its encoding falls short."""
    value = job_as_json(job)
    line = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        line.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False) + "\n"
    return line


def _body(job: HeldJob) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        text = job.payload.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(job.payload).decode()}
    media_type = job.content_type.partition(";")[0].strip().lower()
    return _value(text) if media_type == JSON else text


def _value(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """The JSON value of a text, or the text when it is none that can be written again."""
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number")
    return number
