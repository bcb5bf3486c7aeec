"""Buried jobs: listing leaves them in place, and a kick loses none."""

import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay import BuriedJob, BuriedJobs, Client, RabbitDelayError
from rabbitdelay.core.topology.topology import DELIVERY_LIMIT
from rabbitdelay.engine.parked import queue_reader
from rabbitdelay.engine.parked.parked_queue import BATCH
from rabbitdelay.errors import (
    ConnectionFailed,
    InvalidConfiguration,
    NamespaceMissing,
    TopologyMissing,
)
from tests.conftest import ClientFactory, ReceiverFactory, TopicsFactory
from tests.support.brokers.management import Management
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.jobs.connections import cut, popper_of
from tests.support.patience import patience, wait_until

QUORUM = pytest.mark.parametrize("client", ["quorum"], indirect=True)
Bury = Callable[..., None]


@pytest.fixture
def client(request: pytest.FixtureRequest, make_client: ClientFactory) -> Client:
    """A client with classic queues, which are faster, unless a test is marked QUORUM."""
    return make_client(queue_type=getattr(request, "param", "classic"))


@pytest.fixture
def channel(broker_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def jobs(client: Client, make_topics: TopicsFactory) -> BuriedJobs:
    """The buried jobs of topic `mail`, which exists."""
    make_topics("mail", queue_type=client.topology.queue_type)
    return client.buried("mail")


@pytest.fixture
def bury(client: Client, jobs: BuriedJobs, channel: BlockingChannel) -> Bury:
    """Publish to the buried exchange, as a consumer does."""
    assert jobs.count() == 0

    def run(*ids: str, headers: dict[str, Any] | None = None, **properties: Any) -> None:  # noqa: ANN401
        for name in ids:
            given = pika.BasicProperties(
                message_id=name,
                delivery_mode=2,
                headers=headers or {"rd-attempt": 3, "rd-reason": "attempt 3 of 3 failed"},
                **properties,
            )
            channel.basic_publish(client.topology.buried_exchange, "mail", b"body", given)

    return run


@pytest.fixture
def reject(client: Client, channel: BlockingChannel) -> Callable[[], None]:
    """Take the next job like a plain consumer, and reject it."""
    ready = client.topology.ready_queue("mail")

    def refused() -> bool:
        method, _, _ = channel.basic_get(ready)
        if method is not None:
            channel.basic_nack(method.delivery_tag or 0, requeue=False)
        return method is not None

    return lambda: wait_until(refused, what="a job is ready")


@pytest.fixture
def restricted_url(shared_broker: SharedBroker, namespace: str) -> Iterator[str]:
    """The URL of a user who may read and write, but not declare."""
    management, url = shared_broker.management, urlsplit(shared_broker.url)
    vhost = quote(management.vhost, safe="")
    _put(management, f"users/{namespace}", password=namespace, tags="")
    _put(management, f"permissions/{vhost}/{namespace}", configure="", write=".*", read=".*")
    yield url._replace(netloc=f"{namespace}:{namespace}@{url.hostname}:{url.port}").geturl()
    management._call("DELETE", f"users/{namespace}")


def ids(jobs: BuriedJobs, **choice: Any) -> set[str | None]:  # noqa: ANN401 - passed on
    return {job.id for job in jobs.list(**choice)}


@QUORUM
def test_listing_often_removes_nothing(jobs: BuriedJobs, bury: Bury) -> None:
    """RabbitMQ 4 drops a message after 20 deliveries by default; this lists more often."""
    bury("a", "b")
    for _ in range(25):
        assert ids(jobs) == {"a", "b"}
    assert jobs.count() == 2


def test_jobs_are_chosen_by_limit_id_and_filter(jobs: BuriedJobs, bury: Bury) -> None:
    bury("a", "b", "c")
    assert len(ids(jobs, limit=2)) == 2
    assert ids(jobs, id="c") == {"c"}
    assert ids(jobs, id=["a", "c", "x"]) == {"a", "c"}
    assert ids(jobs, id=[]) == set()
    assert ids(jobs, where=lambda job: job.id != "a") == {"b", "c"}
    assert [job.id for job in jobs.show("b")] == ["b"]
    assert jobs.show("x") == []
    with pytest.raises(InvalidConfiguration, match="limit"):
        ids(jobs, limit=0)


def test_a_buried_job_has_its_times_error_and_body(jobs: BuriedJobs, bury: Bury) -> None:
    headers = {
        "rd-attempt": 3,
        "rd-put": 1_800_000_000_000,
        "rd-due": 1_800_000_060_000,
        "rd-reason": "attempt 3 of 3 failed",
        "rd-buried": 1_800_000_061_000,
        "rd-error": "no",
        "rd-error-type": "LookupError",
        "rd-traceback": "Traceback",
        "trace-id": "00-abc",
    }
    bury("a", headers=headers, content_type="text/plain")
    (job,) = jobs.list()
    assert (job.topic, job.id, job.attempt) == ("mail", "a", 3)
    assert (job.reason, job.error, job.error_type) == ("attempt 3 of 3 failed", "no", "LookupError")
    assert (job.traceback, job.last_error) == ("Traceback", "LookupError: no")
    assert (job.payload, job.body, job.content_type) == (b"body", "body", "text/plain")
    assert job.put is not None
    assert job.due is not None
    assert job.buried is not None
    assert (job.due - job.put).total_seconds() == 60
    assert (job.buried - job.due).total_seconds() == 1
    assert job.headers["trace-id"] == "00-abc"
    assert repr(job) == "BuriedJob(topic='mail', id='a', reason='attempt 3 of 3 failed')"


def test_a_closed_iterator_returns_its_jobs_to_the_queue(jobs: BuriedJobs, bury: Bury) -> None:
    bury("a", "b", "c")
    found = jobs.list()
    next(found)
    assert jobs.count() == 0, "all of the batch is unacknowledged"
    found.close()  # type: ignore[attr-defined] # it is a generator
    wait_until(lambda: jobs.count() == 3)
    assert ids(jobs) == {"a", "b", "c"}


def test_a_kicked_job_loses_only_the_headers_of_its_failure(
    jobs: BuriedJobs, bury: Bury, receive: ReceiverFactory
) -> None:
    headers = {
        "rd-attempt": 3,
        "rd-due": 1,
        "rd-token": "t-1",
        "rd-reason": "attempt 3 of 3 failed",
        "rd-buried": 2,
        "rd-error": "no",
        "rd-error-type": "LookupError",
        "traceparent": "00-abc",
    }
    kept = {
        "correlation_id": "c-1",
        "reply_to": "replies",
        "content_type": "text/csv",
        "content_encoding": "gzip",
        "priority": 3,
        "timestamp": 1_700_000_000,
        "type": "order",
        "app_id": "shop",
    }
    bury("a", headers=headers, user_id="guest", expiration="3600000", **kept)
    before_ms = time.time_ns() // 1_000_000
    assert jobs.kick().sent == 1
    (received,) = receive("mail").wait_for_count(1)
    assert (received.id, received.body) == ("a", b"body")
    due_ms = received.headers.pop("rd-due")
    assert before_ms <= due_ms <= received.received_ms
    known = {"rd-known": 1}  # its putter's due time
    assert received.headers == known | {
        "rd-attempt": 1,
        "rd-token": "t-1",
        "traceparent": "00-abc",
    }
    assert {name: getattr(received.properties, name) for name in kept} == kept
    assert received.properties.delivery_mode == 2
    assert (received.properties.expiration, received.properties.user_id) == (None, None)
    assert jobs.count() == 0


@QUORUM
def test_a_job_rejected_by_a_plain_consumer_is_kicked(
    client: Client, jobs: BuriedJobs, reject: Callable[[], None], receive: ReceiverFactory
) -> None:
    """The broker's record has the time and the reason, and a kick removes it."""
    before_ms = time.time_ns() // 1_000_000
    client.put("mail", {"n": 1}, id="a", delay=0.1)
    reject()
    wait_until(lambda: jobs.count() == 1)
    (one,) = jobs.list(limit=5)
    assert one.reason == "a consumer rejected it"
    assert one.buried_ms is not None
    assert before_ms - 1_000 <= one.buried_ms <= time.time_ns() // 1_000_000
    assert jobs.kick().sent == 1
    (received,) = receive("mail").wait_for_count(1)
    assert json.loads(received.body) == {"n": 1}
    assert not [name for name in received.headers if "death" in name]


@QUORUM
def test_a_job_whose_consumers_died_is_kicked(
    client: Client, jobs: BuriedJobs, broker_url: str
) -> None:
    client.put("mail", id="a")
    for _ in range(DELIVERY_LIMIT + 1):
        _take_and_die(broker_url, client.topology.ready_queue("mail"))
    wait_until(lambda: jobs.count() == 1)
    (one,) = jobs.list(limit=5)
    assert (one.id, one.attempt) == ("a", 1)
    assert "delivery limit" in one.reason
    assert jobs.kick().sent == 1


def test_a_message_that_is_not_a_job_is_kicked(
    jobs: BuriedJobs, bury: Bury, receive: ReceiverFactory
) -> None:
    bury("a", headers={"rd-ttr": "soon", "rd-reason": "header rd-ttr: not an integer"})
    assert jobs.kick().sent == 1
    (received,) = receive("mail").wait_for_count(1)
    assert received.headers["rd-ttr"] == "soon"
    assert "rd-reason" not in received.headers


def test_only_chosen_jobs_are_kicked(
    jobs: BuriedJobs, bury: Bury, receive: ReceiverFactory
) -> None:
    bury("a", "b", "c", "d", "e")
    assert jobs.kick(id="c").sent == 1
    assert jobs.kick(where=lambda job: job.id == "e").sent == 1
    assert jobs.kick(limit=2).sent == 2
    assert jobs.count() == 1
    assert len(receive("mail").wait_for_count(4)) == 4


@pytest.mark.parametrize("client", ["classic", "quorum"], indirect=True)
def test_more_jobs_than_one_batch_are_listed_kicked_and_dropped(
    jobs: BuriedJobs, bury: Bury
) -> None:
    names = [f"j{number}" for number in range(2 * BATCH + 50)]
    bury(*names)
    assert ids(jobs) == set(names)
    assert ids(jobs, id=names[-1]) == {names[-1]}
    tried: list[str | None] = []
    result = jobs.kick(limit=BATCH + 20, on_tried=lambda one, _: tried.append(one.id))
    assert (result.sent, len(set(tried))) == (BATCH + 20, BATCH + 20)
    assert jobs.count() == BATCH + 30
    assert jobs.drop() == BATCH + 30
    assert jobs.count() == 0


def test_a_kick_ends_when_the_other_jobs_are_removed(
    client: Client,
    channel: BlockingChannel,
    jobs: BuriedJobs,
    bury: Bury,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_reader, "QUIET_SECONDS", 0.2)
    bury(*(f"j{number}" for number in range(BATCH + 1)))

    def take_the_rest(_one: BuriedJob, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        channel.queue_purge(client.topology.buried_queue("mail"))

    assert jobs.kick(on_tried=take_the_rest).sent == BATCH


def test_a_kick_ends_although_its_jobs_are_buried_again(jobs: BuriedJobs, bury: Bury) -> None:
    """Each is tried once, even if there are more jobs than one batch."""
    names = [f"j{number}" for number in range(BATCH + 10)]
    bury(*names)
    tried: list[str | None] = []

    def bury_again(one: BuriedJob, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        assert len(tried) < len(names), "the pass does not end"
        tried.append(one.id)
        bury(str(one.id))

    assert jobs.kick(on_tried=bury_again).sent == len(names)
    assert sorted(map(str, tried)) == sorted(names)
    assert jobs.count() == len(names)


def test_a_kick_declares_a_missing_ready_queue(
    client: Client,
    channel: BlockingChannel,
    jobs: BuriedJobs,
    bury: Bury,
    receive: ReceiverFactory,
) -> None:
    bury("a")
    channel.queue_delete(client.topology.ready_queue("mail"))
    assert jobs.kick().sent == 1
    receive("mail").wait_for("a")


def test_a_job_that_the_broker_returns_stays_buried(
    client: Client, channel: BlockingChannel, jobs: BuriedJobs, bury: Bury
) -> None:
    """The topic and the queue `unrouted` are deleted during the kick."""
    bury(*(f"j{number}" for number in range(BATCH + 1)))

    def take_away(_one: BuriedJob, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        channel.queue_delete(client.topology.ready_queue("mail"))
        channel.queue_delete(client.topology.unrouted)

    result = jobs.kick(on_tried=take_away)
    assert (result.sent, result.stayed) == (BATCH, 1)
    assert len(ids(jobs)) == 1


@QUORUM
def test_a_kick_that_ends_before_its_new_queue_has_stabilised_loses_nothing(
    client: Client,
    make_client: ClientFactory,
    channel: BlockingChannel,
    jobs: BuriedJobs,
    bury: Bury,
) -> None:
    """The copy arrives, and the original stays: the job is duplicated, never lost."""
    bury("a")
    ready = client.topology.ready_queue("mail")
    channel.queue_delete(ready)
    unstable = make_client(stabilise_seconds=600)

    def kick() -> None:
        with suppress(RabbitDelayError):
            unstable.buried("mail").kick()

    kicking = threading.Thread(target=kick)
    kicking.start()
    wait_until(lambda: _is_ready(channel, ready), what="the copy is ready")
    unstable.close(0)
    kicking.join(patience(10))
    assert not kicking.is_alive()
    wait_until(lambda: ids(jobs) == {"a"})


def test_a_kick_that_loses_its_connection_loses_no_job(
    client: Client, jobs: BuriedJobs, bury: Bury, receive: ReceiverFactory
) -> None:
    names = {f"j{number}" for number in range(2 * BATCH)}
    bury(*names)
    kicked: set[str | None] = set()

    def lose(one: BuriedJob, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        if not kicked:
            wait_until(lambda: cut(popper_of(client).consumer._connector))
        kicked.add(one.id)

    with pytest.raises(ConnectionFailed):
        jobs.kick(on_tried=lose)
    assert len(kicked) == BATCH
    wait_until(lambda: jobs.count() >= BATCH, what="the others are back")
    ready = receive("mail")
    ready.wait_for_count(BATCH)
    assert ids(jobs) | ready.ids.keys() == names


def test_a_user_without_configure_permission_kicks_into_existing_queues(
    make_client: ClientFactory, restricted_url: str, jobs: BuriedJobs, bury: Bury
) -> None:
    bury("a", "b")
    restricted = make_client(restricted_url, queue_type="classic")
    assert restricted.buried("mail").kick(id="a").sent == 1
    assert jobs.count() == 1


def test_drop_removes_only_chosen_jobs(jobs: BuriedJobs, bury: Bury) -> None:
    bury("a", "b", "c", "d")
    assert jobs.drop(id="b") == 1
    assert jobs.drop(where=lambda job: job.id == "d") == 1
    assert jobs.drop(id=[]) == 0
    assert jobs.drop(limit=1) == 1
    assert jobs.count() == 1


# Deleted jobs


def test_list_drops_the_deleted_jobs_that_it_passes(
    client: Client, jobs: BuriedJobs, bury: Bury
) -> None:
    """Such a job is not counted, and does not use up the limit."""
    bury("dead", "a", "dead", "b")
    client.delete("dead")
    assert [one.id for one in jobs.list(limit=1)] == ["a"]
    assert (jobs.dropped_deleted, jobs.count()) == (1, 3)
    assert ids(jobs) == {"a", "b"}
    assert (jobs.dropped_deleted, jobs.count()) == (2, 2)


def test_deleted_jobs_are_listed_without_the_log_of_deletes(
    client: Client, jobs: BuriedJobs, bury: Bury
) -> None:
    bury("dead", "a")
    client.delete("dead")
    assert ids(jobs, check_deletes=False) == {"dead", "a"}
    assert len(jobs.show("dead", check_deletes=False)) == 1
    assert jobs.show("dead") == []
    assert (jobs.dropped_deleted, jobs.count()) == (1, 1)


def test_list_drops_only_chosen_deleted_jobs(client: Client, jobs: BuriedJobs, bury: Bury) -> None:
    bury("a", "b")
    client.delete_many(["a", "b"])
    assert ids(jobs, id="b") == set()
    assert (jobs.dropped_deleted, jobs.count()) == (1, 1)


def test_a_kick_drops_deleted_jobs(
    client: Client, jobs: BuriedJobs, bury: Bury, receive: ReceiverFactory
) -> None:
    now_ms = time.time_ns() // 1_000_000
    bury("a", headers={"rd-put": now_ms - 1_000, "rd-due": now_ms})
    client.delete("a")
    bury("a", headers={"rd-put": now_ms + 10_000, "rd-due": now_ms + 10_000, "rd-token": "new"})
    bury("b")
    kicked = jobs.kick()
    assert (kicked.sent, kicked.stayed, kicked.dropped_deleted) == (2, 0, 1)
    assert jobs.count() == 0
    ready = receive("mail")
    ready.wait_for("a", "b")
    assert [one.headers.get("rd-token") for one in ready.messages if one.id == "a"] == ["new"]


def test_a_message_that_is_not_a_job_is_never_dropped_as_deleted(
    client: Client, jobs: BuriedJobs, bury: Bury
) -> None:
    bury("a", headers={"rd-version": 99})
    client.delete("a")
    assert ids(jobs) == {"a"}
    assert jobs.dropped_deleted == 0


def test_a_delete_that_consumers_have_forgotten_is_found_in_the_log(
    client: Client, jobs: BuriedJobs, bury: Bury, channel: BlockingChannel
) -> None:
    """A buried job waits for longer than its tombstone is kept in memory."""
    old_ms = time.time_ns() // 1_000_000 - 9 * 86_400_000
    log_reader = client._log_reader()
    wait_until(lambda: log_reader.known.following.tombstones.floor_ms > old_ms, what="it was swept")
    record = {"delete": ["a"], "time": old_ms + 1, "due": old_ms}
    channel.basic_publish(client.topology.tombstones, "", json.dumps(record).encode())
    bury("a", "b", headers={"rd-put": old_ms, "rd-due": old_ms})
    assert ids(jobs) == {"b"}
    assert jobs.dropped_deleted == 1


@pytest.mark.usefixtures("jobs")
def test_a_missing_topic_is_an_error(client: Client) -> None:
    jobs = client.buried("nothing")
    for look in (jobs.count, lambda: list(jobs.list()), jobs.kick, jobs.drop):
        with pytest.raises(TopologyMissing, match="nothing was ever put to topic nothing"):
            look()


def test_a_missing_namespace_is_an_error(client: Client) -> None:
    jobs = client.buried("mail")
    for look in (jobs.count, lambda: list(jobs.list()), jobs.kick, jobs.drop):
        with pytest.raises(NamespaceMissing, match="there is no namespace"):
            look()


def _is_ready(channel: BlockingChannel, queue: str) -> bool:
    missing = suppress(pika.exceptions.ChannelClosedByBroker)
    with missing, channel.connection.channel() as looking:
        return bool(looking.queue_declare(queue, passive=True).method.message_count)
    return False


def _take_and_die(url: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        wait_until(lambda: channel.basic_get(queue)[0], what="the job is ready")


def _put(management: Management, path: str, **body: str) -> None:
    credentials = b64encode(f"{management.user}:{management.password}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    request = Request(f"{management.url}api/{path}", data, headers, method="PUT")  # noqa: S310
    urlopen(request, timeout=patience(10)).close()  # noqa: S310 - always http
