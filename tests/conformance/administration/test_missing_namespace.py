"""A namespace or topic that does not exist: only a put or a worker creates one."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rabbitdelay import Client, NamespaceMissing
from rabbitdelay.errors import DeleteManyFailed
from tests.conftest import ClientFactory, TopicsFactory
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.jobs.popped_jobs import drained, pop
from tests.support.patience import patience, wait_until

Made = Callable[[], list[str]]


@pytest.fixture
def made(shared_broker: SharedBroker, namespace: str) -> Made:
    """Return the names of all queues and exchanges of the test's namespace."""
    management = shared_broker.management

    def names() -> list[str]:
        kinds = ("queues", "exchanges")
        return [name for kind in kinds for name in management.names(kind, f"{namespace}.")]

    return names


@pytest.mark.parametrize("declare", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.delete("x"),
        lambda client: client.purge("t"),
        lambda client: client.pause("t"),
        lambda client: client.resume("t"),
        lambda client: client.topics("t"),
        lambda client: client.tombstones(),
        lambda client: client.pop("t"),
        lambda client: client.pop(["t", "u"], max=3, wait=0.7),
    ],
    ids=["delete", "purge", "pause", "resume", "topics", "tombstones", "pop", "pop several"],
)
def test_a_call_in_a_missing_namespace_raises_and_creates_nothing(
    make_client: ClientFactory,
    namespace: str,
    made: Made,
    call: Callable[[Client], Any],
    declare: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    client = make_client(declare=declare)
    for _ in range(2):
        with pytest.raises(NamespaceMissing, match=f"there is no namespace {namespace}"):
            call(client)
    assert made() == []


def test_delete_many_in_a_missing_namespace_raises(client: Client, made: Made) -> None:
    with pytest.raises(DeleteManyFailed, match="there is no namespace") as caught:
        client.delete_many(["a", "b"])
    assert caught.value.deleted == 0
    assert isinstance(caught.value.__cause__, NamespaceMissing)
    assert made() == []


def test_all_calls_work_right_after_the_first_put(client: Client) -> None:
    """A client does not cache that a namespace is missing."""
    for call in (client.pop, client.topics, client.delete, client.pause):
        with pytest.raises(NamespaceMissing):
            call("t")
    client.put("t", id="first")
    assert client.topics("t")[0].ready == 1
    job = client.pop("t")
    assert job is not None
    job.finish()
    assert client.delete("first") == 1
    client.pause("t")
    client.resume("t")


def test_the_first_put_of_a_namespace_may_ask_for_a_response(client: Client) -> None:
    assert client.put("t", reply=True).reply_to is not None


def test_a_pop_waits_for_a_missing_namespace(client: Client, make_client: ClientFactory) -> None:
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(client.pop, "t", wait=patience(30))
        with pytest.raises(NamespaceMissing):
            make_client().pop("t", wait=0.5)
        assert not popped.done()
        make_client().put("t", id="first")
        job = popped.result(patience(30))
    assert job is not None
    assert job.id == "first"
    job.finish()


def test_a_pop_waits_for_a_missing_topic(
    client: Client, make_client: ClientFactory, make_topics: TopicsFactory, made: Made
) -> None:
    """The pop serves the other topics meanwhile, and does not create the missing one."""
    make_topics("there")
    before = sorted(made())
    assert client.pop("mistyped") is None
    assert client.pop(["mistyped", "there"], max=2, wait=0.7) == []
    other = make_client()
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(client.pop, ["new", "there"], wait=patience(30))
        time.sleep(0.7)  # it has looked for the topic at least once more
        assert sorted(made()) == before
        other.put("there", id="at once")
        first = popped.result(patience(30))
        popped = pool.submit(client.pop, ["new", "there"], wait=patience(30))
        other.put("new", id="later")
        second = popped.result(patience(30))
    assert first is not None
    assert second is not None
    assert [first.id, second.id] == ["at once", "later"]
    for job in (first, second):
        job.finish()


def test_a_delete_during_the_first_put_of_a_namespace_succeeds_or_raises(
    client: Client, make_client: ClientFactory
) -> None:
    """The delete raises if it is too early, and never after the put has returned."""
    other = make_client()
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(client.put, "t", id="x", delay=1)

        def is_deleted() -> bool:
            has_returned = put.done()
            try:
                return other.delete("x") == 1 and has_returned
            except NamespaceMissing:
                assert not has_returned
                return False

        wait_until(is_deleted)
    client.put("t", id="y", delay=1)
    job = pop(client)
    assert job.id == "y"
    job.finish()
    assert drained(client) == []


def test_a_pop_declares_a_lost_ready_queue_again(
    client: Client, make_client: ClientFactory, shared_broker: SharedBroker, made: Made
) -> None:
    client.put("t")
    pop(client).finish()
    ready = client.topology.ready_queue("t")
    shared_broker.management.delete("queues", ready)
    assert make_client().pop("t") is None
    assert ready in made()
