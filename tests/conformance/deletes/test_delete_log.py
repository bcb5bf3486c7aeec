"""The log of deletes: it survives the broker, and foreign records in it do not stop clients."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rabbitdelay import Client, Job, JobSpec, NamespaceMissing, OutcomeUnknown
from rabbitdelay.core.deletes.records import RecordTooNew
from rabbitdelay.errors import DeleteManyFailed
from rabbitdelay.private_broker import PrivateBroker
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.fronts import Front
from tests.support.jobs import deletes
from tests.support.jobs.connections import cut_pops, cut_worker, dispatcher_of
from tests.support.jobs.deletes import left_over, noting
from tests.support.jobs.popped_jobs import drained, pops, take
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

# Durability


def test_returned_deletes_survive_the_broker(
    front: Front, breakable_broker: PrivateBroker, namespace: str
) -> None:
    """No consumer is alive. Calls during the outage also take effect, or raise OutcomeUnknown."""
    broker, jobs = breakable_broker, dict[str, Job]()
    names = ("by id", "whole", "purged", "during", "lives", "paused")
    topics = {"purged": "u", "paused": "p"}
    with front.client(broker.url, namespace=namespace, timeout=patience(20)) as client:
        specs = (JobSpec(topics.get(name, "t"), id=name, delay=4) for name in names)
        client.put_many(specs, on_confirmed=lambda job: jobs.update({job.id: job}))
        client.delete("by id")
        client.delete(jobs["whole"])
        client.purge("u")
        client.pause("p")
        broker.nodes[0].kill()
        with ThreadPoolExecutor(1) as pool:
            during = pool.submit(client.delete, "during")
            with pytest.raises(OutcomeUnknown):
                client.delete("unknown", timeout=0.3)
            with pytest.raises(DeleteManyFailed, match="0 deletes are confirmed"):
                client.delete_many(["unknown"], timeout=0.3)
            broker.start()
            during.result(patience(60))
    with front.client(broker.url, namespace=namespace, timeout=patience(20)) as another:
        (job,) = take(another, 1, "t", "u", "p")
        assert job.id == "lives"
        job.finish()
        assert drained(another, "t", "u") == []
        assert another.tombstones().paused == ("p",)
        another.resume("p")
        assert [job.id for job in take(another, 1, "p")] == ["paused"]
        assert left_over(broker.url, another.topology, "t", "u") == {}


def test_a_consumer_learns_of_deletes_during_an_outage_before_it_continues(
    client: Client, make_client: ClientFactory, make_worker: WorkerFactory
) -> None:
    worker = make_worker()
    seen = noting(worker)
    other = make_client()
    client.put("u", id="first")
    assert pops(client, "u") == ["first"]
    with working(worker):
        for n in range(5):
            client.put("t", id=f"dead {n}", delay=3)
            client.put("u", id=f"dead {n}", delay=3)
            cut_worker(worker)
            cut_pops(client)
            other.delete(f"dead {n}")
        client.put("t", id="lives", delay=4)
        client.put("u", id="lives", delay=4)
        wait_until(lambda: "lives" in seen, seconds=30)
        assert pops(client, "u", wait=0.6) == ["lives"]
    assert seen == ["lives"]


@pytest.mark.usefixtures("existing_namespace")
def test_a_missing_log_is_created_again(
    client: Client, make_client: ClientFactory, broker_url: str
) -> None:
    """The delete that finds the log missing creates it."""
    client.delete("before")
    deletes.delete_log(broker_url, client.topology)
    job = client.put("t", id="by id")
    client.delete_many([client.put("t"), "by id"])
    client.put("t", id="lives")
    assert drained(make_client()) == ["lives"]
    assert job.id == "by id"


def test_a_client_that_may_not_declare_can_delete_and_pause(
    client: Client, make_client: ClientFactory
) -> None:
    locked_down = make_client(declare=False)
    with pytest.raises(NamespaceMissing, match="there is no namespace"):
        locked_down.delete("x")
    client.put_many(JobSpec("t", id=f"dead {n}") for n in range(3))
    client.put("t", id="lives")
    locked_down = make_client(declare=False)
    locked_down.delete("dead 0")
    locked_down.delete_many(["dead 1", "dead 2"])
    assert drained(locked_down) == ["lives"]
    assert locked_down.tombstones().count == 3
    locked_down.replace("t", "replaced", id="lives")
    locked_down.pause("t")
    wait_until(lambda: locked_down.tombstones().paused == ("t",))
    assert locked_down.pop("t") is None
    locked_down.purge("t")
    locked_down.resume("t")
    assert drained(locked_down) == []


# Foreign records

GARBAGE: list[bytes | dict[str, Any]] = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"[" * 100_000,
    b"{}",
    {"delete": "lives", "time": 1},
    {"delete": ["lives"]},
    {"delete": ["lives"], "time": "now"},
    {"delete": ["lives"], "time": 1e15},
    {"delete": [["lives", "token"]], "time": 1},
    {"delete": [None], "time": 1},
    {"keep": ["lives"], "time": 1, "due": 1},
    {"purge": ["t"], "time": 1},
    {"pause": 17},
    {"version": "two", "purge": "t", "time": 10**15},
    {"surge": "t"},
]
ODD: list[bytes | dict[str, Any]] = [
    {"delete": ["far"], "time": 10**30},
    {"delete": ["far"], "time": 1, "due": 10**30},
    {"delete": ["long ago"], "time": -(10**30)},
    {"delete": [["far", "x" * 1_000, 10**30]], "time": 10**30},
    {"delete": ["", "x" * 100_000], "time": 1},
    {"delete": [], "time": 1},
    {"keep": ["kept", ""], "time": 10**30, "due": -1},
    {"purge": "x" * 10_000, "time": -1},
    {"horizon": 10**30},
    {"horizon": -1},
    {"resume": ""},
    {"fence": ""},
    {"snapshot": 10**30},
    b'{"delete":["\\u0000"],"time":1,"time":2}',
]


def test_a_message_that_is_not_a_record_is_skipped(
    client: Client,
    make_worker: WorkerFactory,
    broker_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker logs a warning and continues. Records with odd times and names are harmless."""
    caplog.set_level(logging.WARNING)
    client.put("t", id="lives")
    deletes.append(broker_url, client.topology, *GARBAGE)
    worker = make_worker()
    seen = noting(worker)
    with working(worker):
        wait_until(lambda: seen == ["lives"])
        warnings = [one for one in caplog.messages if "record skipped" in one]
        assert f"position 0 of {client.topology.log().queue.name}" in warnings[0]
        deletes.append(broker_url, client.topology, *ODD)
        client.delete(client.put("t", id="dead", delay=patience(1)))
        client.put("t", id="lives too", delay=patience(1))
        wait_until(lambda: "lives too" in seen)
        wait_until(lambda: worker.stats().counts.deleted == 1)
    assert seen == ["lives", "lives too"]
    assert client.tombstones().paused == ()


def test_a_record_of_a_newer_version_stops_its_readers(
    client: Client, make_client: ClientFactory, make_worker: WorkerFactory, broker_url: str
) -> None:
    """Readers must not guess its meaning. Writers continue."""
    worker, later = make_worker(), make_worker()
    noting(worker)
    noting(later)
    client.put("t", id="runs")
    assert pops(client, "u") == []

    def read_it() -> None:
        with working(worker):
            wait_until(lambda: worker.stats().counts.finished == 1)
            deletes.append(broker_url, client.topology, {"version": 2, "sweep": "t"})
            client.put("t", id="stays", delay=0.2)
            wait_until(lambda: dispatcher_of(worker).is_done)

    with pytest.raises(RecordTooNew, match=r"version 2, .* upgrade"):
        read_it()
    for one in (client, make_client()):
        with pytest.raises(RecordTooNew, match="upgrade"):
            one.pop("t", wait=patience(5))
        with pytest.raises(RecordTooNew, match="upgrade"):
            one.tombstones()
        one.delete("fine")
    with pytest.raises(RecordTooNew, match="upgrade"):
        later.run(until_empty=True)
    wait_until(lambda: list(left_over(broker_url, client.topology).values()) == [1])


# Propagation


def test_a_delete_is_known_soon(client: Client, make_client: ClientFactory) -> None:
    other, seconds, baseline = make_client(), list[float](), list[float]()
    for n in range(50):
        other.put("t", id=str(n))
        (job,) = take(client, 1)
        began = time.monotonic()
        other.delete(str(n))
        returned = time.monotonic()
        baseline.append(returned - began)
        seconds.append(deletes.return_when_deleted(job) - returned)
        job.finish()
    quarter, median = (sorted(seconds)[number] for number in (12, 25))
    print(f"job.deleted after {median * 1000:.1f} ms p50, {max(seconds) * 1000:.1f} ms at most")  # noqa: T201
    assert quarter < 0.1 + 2 * sorted(baseline)[25], "a busy machine delays the deletes as well"
