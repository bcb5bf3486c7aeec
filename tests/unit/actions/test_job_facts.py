"""The stub job for the tests of actions, and the format of times and headers."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rabbitdelay.actions.job_facts import headers_as_json, iso_time
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.settle.leased_job import LeasedJob
from rabbitdelay.models import Job


class StubSettlement:
    """A settlement without a broker, of one job."""

    waiter = None

    def __init__(self, time_left: float, *, is_lost: bool) -> None:
        self.seconds_left = time_left
        self.is_lost = is_lost
        self._callbacks: list[Callable[[], None]] = []

    def finish(self, lease: Lease) -> None:
        raise NotImplementedError

    def touch(self, lease: Lease) -> float:
        raise NotImplementedError

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[None]:
        raise NotImplementedError

    def hand_back_unchanged(self, lease: Lease) -> Future[None]:
        raise NotImplementedError

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[None]:
        raise NotImplementedError

    def is_deleted(self, lease: Lease) -> bool:
        raise NotImplementedError

    def time_left(self, lease: Lease) -> float:  # noqa: ARG002 - there is one
        return self.seconds_left

    def on_end(self, lease: Lease, callback: Callable[[], None]) -> None:  # noqa: ARG002 - the same
        self._callbacks.append(callback)
        if self.is_lost:
            callback()

    def lose(self) -> None:
        self.is_lost, self.seconds_left = True, 0.0
        for callback in self._callbacks:
            callback()


JOB = Job(
    topic="orderclose",
    id="order-42",
    token="0123456789abcdef",  # noqa: S106 - no secret
    attempt=2,
    put_ms=1_800_000_000_000,
    due_ms=1_800_000_030_250,
    ttr_ms=60_000,
    payload=b'{"order": 42}',
)
LATENESS_MS = 12


class StubJob(LeasedJob):
    """A leased job without a broker; `lose` simulates the end of its lease."""

    def __init__(
        self,
        *,
        time_left: float = 60.0,
        is_lost: bool = False,
        **fields: Any,  # noqa: ANN401 - of Job
    ) -> None:
        job = replace(JOB, **fields)
        message = Message(job.payload, {}, job.id, job.content_type)
        lease = Lease(job, message, 1, 1, received_ms=job.due_ms + LATENESS_MS)
        values = {name: getattr(job, name) for name in Job.__slots__}
        settlement = StubSettlement(time_left, is_lost=is_lost)
        super().__init__(**values, _lease=lease, _settlement=settlement)

    def lose(self) -> None:
        stub = self._settlement
        assert isinstance(stub, StubSettlement)
        stub.lose()


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
