"""Printing a job as one line of JSON, for any body."""

import io
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rabbitdelay.actions.print_json import JobPrinter, job_as_json
from rabbitdelay.errors import InvalidConfiguration
from tests.unit.actions.test_job_facts import StubJob


def printed(job: StubJob, encoding: str = "utf-8") -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    JobPrinter(stream)(job)
    return raw.getvalue()


def test_a_job_is_printed_with_its_properties() -> None:
    line = printed(StubJob())
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "topic": "orderclose",
        "id": "order-42",
        "attempt": 2,
        "due": "2027-01-15T08:00:30.250Z",
        "lateness_ms": 12,
        "content_type": "application/json",
        "headers": {},
        "body": {"order": 42},
    }


@pytest.mark.parametrize(
    ("payload", "content_type", "body"),
    [
        (b"[1.5]", "Application/JSON; charset=utf-8", [1.5]),
        (b"null", "application/json", None),
        (b"{not json", "application/json", "{not json"),
        (b"", "application/json", ""),
        (b"NaN", "application/json", "NaN"),
        (b"[Infinity]", "application/json", "[Infinity]"),
        (b"1e999", "application/json", "1e999"),
        (b"[" * 100_000, "application/json", "[" * 100_000),
        (b"9" * 5_000, "application/json", "9" * 5_000),
        ("é".encode(), "text/plain; charset=utf-8", "é"),
        (b"42", "text/plain", "42"),
        (b"two\nlines", "application/octet-stream", "two\nlines"),
        (b"\xff\x00", "application/octet-stream", {"base64": "/wA="}),
        (b"\xff\x00", "application/json", {"base64": "/wA="}),
    ],
)
def test_the_body_is_json_or_text_or_base64(payload: bytes, content_type: str, body: Any) -> None:  # noqa: ANN401 - JSON
    job = StubJob(payload=payload, content_type=content_type)
    assert job_as_json(job)["body"] == body
    line = printed(job)
    assert line.count(b"\n") == 1
    assert json.loads(line, parse_constant=lambda _: math.nan)["body"] == body


def test_text_is_not_escaped_if_the_stream_can_encode_it() -> None:
    job = StubJob(id="größe-42")
    assert "größe-42".encode() in printed(job)
    assert b"gr\\u00f6\\u00dfe-42" in printed(job, "ascii")


def test_half_a_surrogate_pair_survives() -> None:
    line = printed(StubJob(payload=b'"\\ud800"'))
    assert json.loads(line)["body"] == "\ud800"


class Interleaving(io.StringIO):
    """A stream that switches threads after every letter."""

    def write(self, text: str) -> int:
        return sum(super(Interleaving, self).write(letter) for letter in text)


def test_the_lines_of_several_threads_do_not_mix() -> None:
    stream = Interleaving()
    printer = JobPrinter(stream)
    jobs = [StubJob(id=f"job-{number}") for number in range(200)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(printer, jobs))
    finally:
        sys.setswitchinterval(interval)
    ids = {json.loads(line)["id"] for line in stream.getvalue().splitlines()}
    assert ids == {job.id for job in jobs}


class Broken(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError


def test_a_closed_pipe_raises() -> None:
    with pytest.raises(BrokenPipeError):
        JobPrinter(Broken())(StubJob())


def test_a_closed_stdout_is_reported_before_a_job_is_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InvalidConfiguration, match="because stdout is closed"):
        JobPrinter()
