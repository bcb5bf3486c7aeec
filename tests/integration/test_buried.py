"""The buried queue of a topic on a real broker: looking is safe, and a kick loses nothing."""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay import Client, address
from rabbitdelay.cli.deletes import Deletes
from rabbitdelay.core.parked.buried import Buried, Choice
from rabbitdelay.core.topology.setup import setup
from rabbitdelay.core.topology.topology import DELIVERY_LIMIT
from rabbitdelay.errors import TopologyMissing
from rabbitdelay.sync import parked
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.blocking import connected
from rabbitdelay.sync.buried import BuriedQueue
from rabbitdelay.sync.parked import BATCH
from tests.conftest import ClientFactory, ReceiverFactory
from tests.support.brokers import SharedBroker
from tests.support.management import Management
from tests.support.waiting import patience, wait_until

QUORUM = pytest.mark.parametrize("client", ["quorum"], indirect=True)
Bury = Callable[..., None]


@pytest.fixture
def client(request: pytest.FixtureRequest, make_client: ClientFactory) -> Client:
    """A client with classic queues, which are quicker, unless a test is marked QUORUM."""
    return make_client(queue_type=getattr(request, "param", "classic"))


@pytest.fixture
def channel(broker_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def queue(broker_url: str, client: Client) -> Iterator[BuriedQueue]:
    """The one of topic `mail`, which is made."""
    topology = client.topology
    with connected(address.parse_all(broker_url)) as connection:
        parts = topology.topic("mail")
        Administrator(connection).set_up(setup(topology, parts, with_base=True, may_declare=True))
        yield BuriedQueue(connection, topology, "mail", settle_seconds=0)


@pytest.fixture
def bury(client: Client, queue: BuriedQueue, channel: BlockingChannel) -> Bury:
    """Publish to the buried exchange, as a consumer does."""
    assert queue.is_there()

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
    """Take the next job as a plain consumer does, and refuse it."""
    ready = client.topology.ready_queue("mail")

    def refused() -> bool:
        method, _, _ = channel.basic_get(ready)
        if method is not None:
            channel.basic_nack(method.delivery_tag or 0, requeue=False)
        return method is not None

    return lambda: wait_until(refused, what="a job is ready")


@pytest.fixture
def restricted_url(shared_broker: SharedBroker, namespace: str) -> Iterator[str]:
    """The URL of a user who may read and write, and declare nothing."""
    management, url = shared_broker.management, urlsplit(shared_broker.url)
    vhost = quote(management.vhost, safe="")
    _put(management, f"users/{namespace}", password=namespace, tags="")
    _put(management, f"permissions/{vhost}/{namespace}", configure="", write=".*", read=".*")
    yield url._replace(netloc=f"{namespace}:{namespace}@{url.hostname}:{url.port}").geturl()
    management._call("DELETE", f"users/{namespace}")


def ids(queue: BuriedQueue, choice: Choice | None = None) -> set[str | None]:
    return {one.id for one in queue.look(choice or Choice(), limit=100)}


@QUORUM
def test_looking_removes_nothing_however_often(queue: BuriedQueue, bury: Bury) -> None:
    """More often than the 20 deliveries after which RabbitMQ 4 drops a message by default."""
    bury("a", "b")
    for _ in range(25):
        assert ids(queue) == {"a", "b"}
    assert queue.count() == 2


def test_a_limit_and_an_id_choose(queue: BuriedQueue, bury: Bury) -> None:
    bury("a", "b", "c")
    assert len(queue.look(Choice(), limit=2)) == 2
    assert ids(queue, Choice("c")) == {"c"}
    assert queue.count_chosen(Choice("b")) == 1


def test_a_kicked_job_keeps_all_it_has_but_why_it_failed(
    queue: BuriedQueue, bury: Bury, receive: ReceiverFactory
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
    assert queue.kick(Choice()).sent == 1
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
    assert queue.count() == 0


@QUORUM
def test_a_job_that_a_plain_consumer_rejected(
    client: Client, queue: BuriedQueue, reject: Callable[[], None], receive: ReceiverFactory
) -> None:
    """The broker's record tells when and why, and is gone after a kick."""
    before_ms = time.time_ns() // 1_000_000
    client.put("mail", {"n": 1}, id="a", delay=0.1)
    reject()
    wait_until(lambda: queue.count() == 1)
    (one,) = queue.look(Choice(), limit=5)
    assert one.grave.reason == "a consumer rejected it"
    assert one.buried_ms is not None
    assert before_ms - 1_000 <= one.buried_ms <= time.time_ns() // 1_000_000
    assert queue.kick(Choice()).sent == 1
    (received,) = receive("mail").wait_for_count(1)
    assert json.loads(received.body) == {"n": 1}
    assert not [name for name in received.headers if "death" in name]


@QUORUM
def test_a_job_whose_consumers_died_with_it(
    client: Client, queue: BuriedQueue, broker_url: str
) -> None:
    client.put("mail", id="a")
    for _ in range(DELIVERY_LIMIT + 1):
        _take_and_die(broker_url, client.topology.ready_queue("mail"))
    wait_until(lambda: queue.count() == 1)
    (one,) = queue.look(Choice(), limit=5)
    assert (one.id, one.attempt) == ("a", 1)
    assert "delivery limit" in one.grave.reason
    assert queue.kick(Choice()).sent == 1


def test_what_is_no_job_is_kicked_too(
    queue: BuriedQueue, bury: Bury, receive: ReceiverFactory
) -> None:
    bury("a", headers={"rd-ttr": "soon", "rd-reason": "header rd-ttr: not an integer"})
    assert queue.kick(Choice()).sent == 1
    (received,) = receive("mail").wait_for_count(1)
    assert received.headers["rd-ttr"] == "soon"
    assert "rd-reason" not in received.headers


def test_only_what_is_chosen_is_kicked(
    queue: BuriedQueue, bury: Bury, receive: ReceiverFactory
) -> None:
    bury("a", "b", "c", "d")
    assert queue.kick(Choice("c")).sent == 1
    assert queue.kick(Choice(), limit=2).sent == 2
    assert queue.count() == 1
    assert len(receive("mail").wait_for_count(3)) == 3


def test_more_than_are_received_at_once(queue: BuriedQueue, bury: Bury) -> None:
    names = [f"j{number}" for number in range(2 * BATCH + 50)]
    bury(*names)
    assert ids(queue, Choice(names[-1])) == {names[-1]}
    assert queue.kick(Choice(), limit=BATCH + 20).sent == BATCH + 20
    assert queue.count() == BATCH + 30
    assert queue.drop(Choice()) == BATCH + 30
    assert queue.count() == 0


def test_a_pass_ends_when_somebody_else_takes_the_rest(
    client: Client,
    channel: BlockingChannel,
    queue: BuriedQueue,
    bury: Bury,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parked, "QUIET_SECONDS", 0.2)
    bury(*(f"j{number}" for number in range(BATCH + 1)))

    def take_the_rest(_one: Buried, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        channel.queue_purge(client.topology.buried_queue("mail"))

    assert queue.kick(Choice(), on_tried=take_the_rest).sent == BATCH


def test_a_pass_ends_though_the_jobs_are_buried_again(queue: BuriedQueue, bury: Bury) -> None:
    """Each is tried once, also when there are more than are received at once."""
    names = [f"j{number}" for number in range(BATCH + 10)]
    bury(*names)
    tried: list[str | None] = []

    def bury_again(one: Buried, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        assert len(tried) < len(names), "the pass does not end"
        tried.append(one.id)
        bury(str(one.id))

    assert queue.kick(Choice(), on_tried=bury_again).sent == len(names)
    assert sorted(map(str, tried)) == sorted(names)
    assert queue.count() == len(names)


def test_a_ready_queue_that_is_gone_is_made(
    client: Client,
    channel: BlockingChannel,
    queue: BuriedQueue,
    bury: Bury,
    receive: ReceiverFactory,
) -> None:
    bury("a")
    channel.queue_delete(client.topology.ready_queue("mail"))
    assert queue.kick(Choice()).sent == 1
    receive("mail").wait_for("a")


def test_what_the_broker_does_not_take_stays(
    client: Client, channel: BlockingChannel, queue: BuriedQueue, bury: Bury
) -> None:
    """The topic vanishes half-way, and so does the queue for what cannot be routed."""
    bury("a", "b")

    def take_away(_one: Buried, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        channel.queue_delete(client.topology.ready_queue("mail"))
        channel.queue_delete(client.topology.unrouted)

    result = queue.kick(Choice(), on_tried=take_away)
    assert (result.sent, result.stayed) == (1, 1)
    assert ids(queue) == {"b"}


@QUORUM
def test_killed_before_a_new_queue_has_settled_nothing_is_lost(
    broker_url: str,
    client: Client,
    channel: BlockingChannel,
    queue: BuriedQueue,
    bury: Bury,
) -> None:
    """The copy arrives, and the original is still there: twice, and never not at all."""
    bury("a")
    ready = client.topology.ready_queue("mail")
    channel.queue_delete(ready)

    def interrupt(_one: object, _sent: bool) -> None:  # noqa: FBT001 - as it is called
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        connected(address.parse_all(broker_url)) as connection,
    ):
        BuriedQueue(connection, client.topology, "mail", 3).kick(Choice(), on_tried=interrupt)
    wait_until(lambda: channel.basic_get(ready)[0], what="the copy is ready")
    wait_until(lambda: ids(queue) == {"a"})


def test_a_user_who_may_not_declare_kicks_where_all_is_made(
    client: Client, restricted_url: str, bury: Bury
) -> None:
    bury("a", "b")
    with connected(address.parse_all(restricted_url)) as connection:
        queue = BuriedQueue(connection, client.topology, "mail", settle_seconds=0)
        assert queue.kick(Choice("a")).sent == 1
        assert queue.count() == 1


def test_dropping_removes_what_is_chosen_and_no_more(queue: BuriedQueue, bury: Bury) -> None:
    bury("a", "b", "c")
    assert queue.drop(Choice("b")) == 1
    assert queue.drop(Choice(), limit=1) == 1
    assert queue.count() == 1


# Deleted jobs


def test_what_is_deleted_is_dropped_where_it_is_come_across(
    client: Client, queue: BuriedQueue, bury: Bury
) -> None:
    """It is neither counted nor limited by how many are asked for."""
    bury("dead", "a", "dead", "b")
    client.delete("dead")
    queue.death_of = client._follower().death_of
    assert [one.id for one in queue.look(Choice(), limit=1)] == ["a"]
    assert (queue.dropped_dead, queue.count()) == (1, 3)
    assert ids(queue) == {"a", "b"}
    assert (queue.dropped_dead, queue.count()) == (2, 2)


def test_only_those_that_are_chosen_are_dropped(
    client: Client, queue: BuriedQueue, bury: Bury
) -> None:
    bury("a", "b")
    client.delete_many(["a", "b"])
    queue.death_of = client._follower().death_of
    assert ids(queue, Choice("b")) == set()
    assert (queue.dropped_dead, queue.count()) == (1, 1)


def test_a_kick_sends_on_only_what_lives(
    client: Client, queue: BuriedQueue, bury: Bury, receive: ReceiverFactory
) -> None:
    now_ms = time.time_ns() // 1_000_000
    bury("a", headers={"rd-put": now_ms - 1_000, "rd-due": now_ms})
    client.delete("a")
    bury("a", headers={"rd-put": now_ms + 10_000, "rd-due": now_ms + 10_000, "rd-token": "new"})
    bury("b")
    queue.death_of = client._follower().death_of
    kicked = queue.kick(Choice())
    assert (kicked.sent, kicked.stayed, kicked.dropped_dead) == (2, 0, 1)
    assert queue.count() == 0
    ready = receive("mail")
    ready.wait_for("a", "b")
    assert [one.headers.get("rd-token") for one in ready.messages if one.id == "a"] == ["new"]


def test_what_is_no_job_is_never_dropped(client: Client, queue: BuriedQueue, bury: Bury) -> None:
    bury("a", headers={"rd-version": 99})
    client.delete("a")
    queue.death_of = client._follower().death_of
    assert ids(queue) == {"a"}
    assert queue.dropped_dead == 0


def test_a_delete_that_consumers_have_forgotten_is_found_in_the_log(
    client: Client, queue: BuriedQueue, bury: Bury, channel: BlockingChannel
) -> None:
    """A buried job waits for longer than its tombstone is kept in memory."""
    old_ms = time.time_ns() // 1_000_000 - 9 * 86_400_000
    follower = client._follower()
    wait_until(lambda: follower.following.tombstones.floor_ms > old_ms, what="it was swept")
    record = {"delete": ["a"], "time": old_ms + 1, "due": old_ms}
    channel.basic_publish(client.topology.tombstones, "", json.dumps(record).encode())
    bury("a", "b", headers={"rd-put": old_ms, "rd-due": old_ms})
    queue.death_of = Deletes(client, patience(30)).death_of
    assert ids(queue) == {"b"}
    assert queue.dropped_dead == 1


def test_a_topic_that_is_not_there(broker_url: str, client: Client) -> None:
    with connected(address.parse_all(broker_url)) as connection:
        queue = BuriedQueue(connection, client.topology, "nothing")
        assert not queue.is_there()
        with pytest.raises(TopologyMissing, match="nothing was ever put to topic nothing"):
            queue.count()


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
