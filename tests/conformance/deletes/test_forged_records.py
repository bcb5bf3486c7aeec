"""Forged records written by plain AMQP: they neither kill nor block a job."""

import logging
import time
from typing import Any

import pytest

from rabbitdelay import Client, Worker
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.jobs import deletes
from tests.support.jobs.deletes import noting
from tests.support.jobs.popped_jobs import drained, withholds
from tests.support.jobs.worker_thread import working
from tests.support.patience import wait_until

FAR_MS = (1 << 48) - 1
DAY_SECONDS = 86_400
FORGED: dict[str, dict[str, Any]] = {
    "a delete": {"delete": ["lives"], "time": FAR_MS},
    "a delete with a due time": {"delete": ["lives"], "time": FAR_MS, "due": FAR_MS},
    "a keep of another token": {"keep": ["lives", "f" * 16], "time": FAR_MS, "due": FAR_MS},
    "a purge": {"purge": "t", "time": FAR_MS},
    "a purge in a month": {"purge": "t", "time": int((time.time() + 30 * DAY_SECONDS) * 1000)},
    "a pause since a position to come": {"pause": "t", "since": 1 << 62},
    "a pause since before all": {"pause": "t", "since": -(1 << 62)},
}


def assert_live_jobs_run(
    client: Client, worker: Worker, broker_url: str, forged: dict[str, Any]
) -> None:
    """Run a job, append the record, and run another job."""
    seen = noting(worker)
    with working(worker):
        wait_until(lambda: seen == ["lives"], seconds=40, what="the first job runs")
        deletes.append(broker_url, client.topology, forged)
        client.put("t", id="lives")
        wait_until(lambda: seen == ["lives"] * 2, seconds=40, what="the second job runs")


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_record_is_skipped_with_a_warning(
    client: Client,
    make_worker: WorkerFactory,
    broker_url: str,
    caplog: pytest.LogCaptureFixture,
    *,
    what: str,
) -> None:
    """Both a worker that starts after it and one that reads it while running skip it."""
    caplog.set_level(logging.WARNING)
    client.put("t", id="dead")
    client.delete("dead")
    deletes.append(broker_url, client.topology, FORGED[what])
    client.put("t", id="lives")
    for _ in range(2):
        assert_live_jobs_run(client, make_worker(), broker_url, FORGED[what])
        client.put("t", id="lives")
    assert any("record skipped" in message for message in caplog.messages)
    assert drained(client) == ["lives"]
    assert client.tombstones().paused == ()


def test_a_topic_with_a_forged_pause_is_paused_and_resumed(
    client: Client, make_client: ClientFactory, broker_url: str
) -> None:
    client.put("t", id="lives")
    client.pause("t")
    deletes.append(broker_url, client.topology, FORGED["a pause since a position to come"])
    for one in (client, make_client()):
        assert withholds(one, "t")
    client.resume("t")
    assert drained(make_client()) == ["lives"]


def test_a_delete_by_job_holds_when_the_deleters_clock_is_far_ahead(
    client: Client, make_client: ClientFactory, make_worker: WorkerFactory
) -> None:
    """The record's time is too far ahead, but it names a token, which makes it exact."""
    ahead = make_client(clock=lambda: time.time() + 400 * DAY_SECONDS)
    ahead.delete(client.put("t", id="dead", delay=0.5))
    client.put("t", id="lives", delay=1)
    worker = make_worker()
    seen = noting(worker)
    with working(worker):
        wait_until(lambda: seen == ["lives"], seconds=40)
        assert worker.stats().counts.deleted == 1
