"""Tracebacks: a buried job records where its last attempt failed, in a bounded text."""

from typing import Any

import pytest

from rabbitdelay import Bury, Client, Job, ReservedJob
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.settle.failure import MAX_TRACEBACK
from rabbitdelay.core.settle.republish import TRACEBACK
from tests.conftest import LookerFactory, WorkerFactory
from tests.support.brokers.messages import publish_frames
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.programs import process_handlers


def _close_order(number: int) -> None:
    raise LookupError(f"no such order: {number}")


def test_a_buried_job_keeps_the_traceback_of_its_last_attempt(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    """The traceback starts with the handler's own frame. Copies for retries carry none."""
    worker, seen = make_worker(), list[Any]()

    @worker.handler("t", max_attempts=2, backoff=0.1)
    def close(job: ReservedJob) -> None:
        seen.append(job.message_headers)
        _close_order(job.attempt)

    client.put("t", id="job")
    with working(worker):
        (grave,) = buried("t").wait_for(1)
    text = grave.headers[TRACEBACK]
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in close" in lines[1]
    assert "_close_order(job.attempt)" in lines[2]
    assert "in _close_order" in text
    assert lines[-1] == "LookupError: no such order: 2"
    assert [TRACEBACK in headers for headers in seen] == [False, False]


def test_a_traceback_is_bounded_and_keeps_its_end(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    worker = make_worker()

    @worker.handler("t", max_attempts=1)
    def fail(_job: Job) -> None:
        raise ValueError("x" * 100_000 + "\x00the end")

    client.put("t")
    with working(worker):
        (grave,) = buried("t").wait_for(1)
    text = grave.headers[TRACEBACK]
    assert len(text) == MAX_TRACEBACK
    assert (text[0], text[-8:]) == ("…", "�the end")


def test_a_popped_job_that_is_buried_by_its_block_keeps_the_traceback(
    client: Client, buried: LookerFactory
) -> None:
    client.put("t", max_attempts=1)
    with pytest.raises(LookupError), pop(client, "t"):
        _close_order(7)
    (grave,) = buried("t").wait_for(1)
    assert "_close_order(7)" in grave.headers[TRACEBACK]
    assert grave.headers[TRACEBACK].endswith("\nLookupError: no such order: 7")


def test_the_traceback_of_a_handler_in_a_process_is_from_that_process(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    worker = make_worker(pool="process")
    worker.handler("t", max_attempts=1)(process_handlers.raise_one)
    client.put("t", "refused")
    with working(worker):
        (grave,) = buried("t").wait_for(1, seconds=30)
    assert "in raise_one" in grave.headers[TRACEBACK]
    assert "Refused: " in grave.headers[TRACEBACK]


def test_a_job_that_its_handler_buries_on_purpose_has_no_traceback(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    worker = make_worker()

    @worker.handler("t")
    def bury(_job: Job) -> None:
        raise Bury("never")

    client.put("t")
    with working(worker):
        (grave,) = buried("t").wait_for(1)
    assert TRACEBACK not in grave.headers


def test_headers_that_leave_no_room_for_a_traceback_are_kept_without_one(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory, broker_url: str
) -> None:
    worker = make_worker()

    @worker.handler("t", max_attempts=1)
    def fail(_job: Job) -> None:
        raise ValueError("x" * MAX_TRACEBACK)

    client.put("t", delay=60)  # creates the queues
    large = {"large": "h" * 123_000}
    publish_frames(
        broker_url, client.topology.ready_queue("t"), [Message(b"", large, message_id="job")]
    )
    with working(worker):
        (grave,) = buried("t").wait_for(1)
    assert grave.headers["large"] == large["large"]
    assert grave.headers["rd-reason"] == "attempt 1 of 1 failed"
    assert TRACEBACK not in grave.headers
