"""The stub job for the tests of actions, and the format of times and headers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rabbitdelay.actions.job_facts import ActionJob, headers_as_json, iso_time
from rabbitdelay.executors.reserved_job import ReservedJob


@dataclass
class StubJob:
    """A job without a broker; `lose` simulates the end of its lease."""

    topic: str = "orderclose"
    id: str = "order-42"
    token: str = "0123456789abcdef"  # noqa: S105 - no secret
    attempt: int = 2
    max_attempts: int | None = None
    put_ms: int = 1_800_000_000_000
    due_ms: int = 1_800_000_030_250
    ttr_ms: int | None = 60_000
    payload: bytes = b'{"order": 42}'
    content_type: str = "application/json"
    callback: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    time_left: float = 60.0
    lateness: float = 0.012
    is_lost: bool = False
    _callbacks: list[Callable[[], None]] = field(default_factory=list)

    def on_lost(self, callback: Callable[[], None], /) -> None:
        self._callbacks.append(callback)
        if self.is_lost:
            callback()

    def lose(self) -> None:
        self.is_lost = True
        self.time_left = 0.0
        for callback in self._callbacks:
            callback()


def test_the_stub_has_all_members_of_a_reserved_job() -> None:
    """Mypy checks the types of the members."""
    kinds: list[type[ActionJob]] = [StubJob, ReservedJob]
    members = {name for name in vars(ActionJob) if not name.startswith("_")}
    assert all(
        name in dir(kind) or name in kind.__annotations__ for kind in kinds for name in members
    )


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_030_250, "2027-01-15T08:00:30.250Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ((1 << 48) - 1, "9999-12-31T23:59:59.999Z"),  # the latest time that a message can carry
    ],
)
def test_a_time_is_written_exactly(milliseconds: int, expected: str) -> None:
    assert iso_time(milliseconds) == expected


def test_headers_as_json_can_always_be_written() -> None:
    headers = {"b": b"\xff", "n": [float("nan"), 1.5], "d": {"t": (1, None)}, "s": "ä", "i": True}
    written = headers_as_json(StubJob(headers=headers))
    expected = {"b": "/w==", "n": ["nan", 1.5], "d": {"t": [1, None]}, "s": "ä", "i": True}
    assert json.loads(json.dumps(written, allow_nan=False)) == expected
