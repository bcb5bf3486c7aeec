"""Headers given to a put: they reach the handler on every path that a job can take."""

from typing import Any

import pytest

from rabbitdelay import Client, InvalidJob, JobSpec, PutManyFailed, ReservedJob
from rabbitdelay.core.jobs.envelope import Message
from tests.conftest import WorkerFactory
from tests.support.brokers.messages import publish_frames
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs import process_handlers

HEADERS = {
    "trace-id": "4bf92f",
    "tenant": 7,
    "X-Request-Id": b"\xff",
    "flags": [True, None, -1],
    "of": {"shop": "ä"},
}


def test_headers_reach_the_handler_through_the_ladder_and_on_every_attempt(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker, seen = make_worker(), list[Any]()

    @worker.handler("t", max_attempts=3, backoff=0.1)
    def fail_twice(job: ReservedJob) -> None:
        seen.append((job.attempt, job.headers))
        if job.attempt < 3:
            raise ValueError("not yet")

    job = client.put("t", headers=HEADERS, delay=0.13)
    assert job.headers == HEADERS
    with working(worker):
        wait_until(lambda: worker.stats().counts.finished == 1)
    assert seen == [(attempt, HEADERS) for attempt in (1, 2, 3)]


def test_put_many_replace_and_reschedule_keep_headers(client: Client) -> None:
    client.put_many([JobSpec("t", id="many", headers={"n": 1})])
    put = client.replace("t", id="moved", delay=60, headers={"n": 2})
    moved = client.reschedule(put, delay=0)
    assert moved.headers == {"n": 2}
    client.put("t", id="none")
    found = {}
    for _ in range(3):
        with pop(client, "t") as job:
            found[job.id] = job.headers
    assert found == {"many": {"n": 1}, "moved": {"n": 2}, "none": {}}


def test_a_popped_job_that_is_rescheduled_keeps_its_headers(client: Client) -> None:
    client.put("t", id="job", headers=HEADERS)
    with pop(client, "t") as job:
        again = client.reschedule(job, delay=0)
    assert again.headers == HEADERS
    with pop(client, "t") as job:
        assert job.headers == HEADERS


def test_headers_are_kept_when_a_job_is_buried_and_kicked(client: Client) -> None:
    client.put("t", headers=HEADERS)
    pop(client, "t").bury("broken")
    assert client.buried("t").kick().sent == 1
    with pop(client, "t") as job:
        assert job.headers == HEADERS
        assert job.attempt == 1


def test_headers_reach_a_handler_in_a_process(client: Client, make_worker: WorkerFactory) -> None:
    worker = make_worker(pool="process")
    worker.handler("t")(process_handlers.give_headers)
    job = client.put("t", headers=HEADERS, reply=True)
    with working(worker):
        response = client.response(job, wait=patience(30))
    assert response is not None
    assert response.body == ["X-Request-Id", "flags", "of", "tenant", "trace-id"]


def test_headers_of_other_programs_are_part_of_the_job(client: Client, broker_url: str) -> None:
    """Without ours and the broker's, which are in message_headers."""
    client.put("t", delay=60)  # creates the queues
    headers = {"theirs": 1, "x-theirs": 2, "rd-attempt": 3}
    publish_frames(broker_url, client.topology.ready_queue("t"), [Message(b"", headers)])
    with pop(client, "t") as job:
        assert job.headers == {"theirs": 1}
        assert headers.items() <= job.message_headers.items()


@pytest.mark.usefixtures("existing_namespace")
def test_reserved_headers_are_refused_before_anything_is_sent(
    client: Client,
) -> None:
    for name in ("rd-due", "x-death", "CC"):
        with pytest.raises(InvalidJob, match=f"header '{name}' is reserved"):
            client.put("t", headers={name: 1})
    with pytest.raises(PutManyFailed, match="reserved"):
        client.put_many([JobSpec("t", headers={"x-a": 1})])
    with pytest.raises(InvalidJob, match="must be a mapping"):
        client.put("t", headers=[("a", 1)])  # type: ignore[arg-type]
    assert client.pop("t") is None
