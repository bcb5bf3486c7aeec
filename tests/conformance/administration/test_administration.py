"""Administration verbs of the client: apply, verify, count, examine and remove a namespace."""

import time
from collections.abc import Callable

import pika
import pytest

from rabbitdelay import (
    Client,
    InvalidConfiguration,
    InvalidJob,
    ManagementUnreachable,
    NamespaceInUse,
    NamespaceMissing,
    TopologyConflict,
    TopologyMissing,
)
from rabbitdelay.core.topology import ladder
from tests.conftest import ClientFactory
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.fronts import Front
from tests.support.patience import patience, wait_until

NO_API = "http://127.0.0.1:1"
Change = Callable[[Callable[[pika.adapters.blocking_connection.BlockingChannel], object]], None]


@pytest.fixture
def client(make_client: ClientFactory, shared_broker: SharedBroker) -> Client:
    return make_client(management_url=shared_broker.management.url)


@pytest.fixture
def amqp_client(make_client: ClientFactory) -> Client:
    """A client whose management API is unreachable."""
    return make_client(management_url=NO_API)


@pytest.fixture
def change(broker_url: str) -> Change:
    """Change the broker without the client's knowledge."""

    def run(work: Callable[[pika.adapters.blocking_connection.BlockingChannel], object]) -> None:
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            work(connection.channel())

    return run


# apply


def test_apply_creates_missing_queues_once(client: Client) -> None:
    progress: list[tuple[int, int]] = []
    assert not client.topology.exists()
    made = client.topology.apply(
        topics=["mail"], delays=[1800, 90], on_progress=lambda *step: progress.append(step)
    )
    assert (made.hold_queues, made.topics, made.queues, made.made) == (3, 1, 5, 5)
    assert progress[-1][0] == progress[-1][1]
    assert progress == sorted(progress)
    assert client.topology.exists()
    assert client.topology.apply(topics="mail", delays=[1800]).made == 0


def test_apply_creates_all_hold_queues(client: Client) -> None:
    made = client.topology.apply(all_hold_queues=True)
    assert made.made == made.hold_queues == len(ladder.EVERY_HOP)
    assert client.topology.verify(all_hold_queues=True).problems == ()


def test_apply_refuses_invalid_arguments(client: Client, make_client: ClientFactory) -> None:
    with pytest.raises(InvalidConfiguration, match="declare=False"):
        make_client(declare=False).topology.apply()
    with pytest.raises(InvalidJob):
        client.topology.apply(topics=["no spaces"])
    with pytest.raises(InvalidJob):
        client.topology.apply(delays=["1h"])  # type: ignore[list-item] # a likely mistake
    assert not client.topology.exists()


def test_apply_names_a_queue_with_other_arguments(client: Client, change: Change) -> None:
    client.topology.apply()
    queue = client.topology.ready_queue("mail")
    change(lambda channel: channel.queue_declare(queue, durable=True))
    with pytest.raises(TopologyConflict, match="mail"):
        client.topology.apply(topics="mail")
    change(lambda channel: channel.queue_delete(queue))
    assert client.topology.apply(topics="mail").made == 1, (
        "the failed apply created the other queue"
    )


def test_an_error_in_on_progress_reaches_the_caller(client: Client) -> None:
    def fail(_done: int, _total: int) -> None:
        raise LookupError("by the test")

    with pytest.raises(LookupError, match="by the test"):
        client.topology.apply(on_progress=fail)
    assert client.topology.apply(topics="mail").made == 2


def test_apply_fails_when_the_connection_is_lost(
    front: Front, make_client: ClientFactory, broker_url: str
) -> None:
    """A failed apply is not resumed by itself. Calling it again completes it."""
    with front.back_end.proxy(broker_url) as proxy:
        client = make_client(proxy.url, connect_timeout=patience(10))

        def cut(done: int, total: int) -> None:
            if done > total // 2:
                proxy.cut()

        with pytest.raises(Exception, match="connection"):
            client.topology.apply(all_hold_queues=True, on_progress=cut)
    assert make_client().topology.apply(all_hold_queues=True).made < len(ladder.EVERY_HOP)


# verify and export


@pytest.mark.parametrize("api", [True, False], ids=["management", "amqp"])
def test_verify_finds_missing_and_different_queues(
    client: Client, amqp_client: Client, change: Change, *, api: bool
) -> None:
    client.topology.apply(topics="mail")
    topology = (client if api else amqp_client).topology
    assert topology.verify(topics="mail").problems == ()
    buried, hold = topology.buried_queue("mail"), f"{topology.prefix}hold.1m"
    change(lambda channel: channel.queue_delete(buried))
    change(lambda channel: channel.queue_declare(hold, durable=True))
    found = topology.verify(topics="mail", delays=[60])
    states = {(one.kind, one.name): one.state for one in found.problems}
    assert states["queue", buried] == "missing"
    assert states["queue", hold] == "different"
    assert (found.unchecked is None) == api
    assert client.count("mail") is not None


def test_exported_definitions_can_be_imported(
    client: Client, make_client: ClientFactory, shared_broker: SharedBroker
) -> None:
    reader = make_client(declare=False)
    with pytest.raises(TopologyMissing):
        reader.put("mail", delay=0.2)
    definitions = client.topology.export(topics="mail", delays=[0.2])
    assert {row["vhost"] for rows in definitions.values() for row in rows} == {"/"}
    shared_broker.management.post("definitions", definitions)
    assert client.topology.verify(topics="mail", delays=[0.2]).problems == ()
    assert reader.put("mail", delay=0.2).topic == "mail"
    shop = client.topology.export(vhost="shop")
    assert {row["vhost"] for rows in shop.values() for row in rows} == {"shop"}


# stats, topics and namespaces


@pytest.mark.parametrize("api", [True, False], ids=["management", "amqp"])
def test_stats_count_jobs_by_queue(client: Client, amqp_client: Client, *, api: bool) -> None:
    for delay in (0, 0, 1800, 1800, 7200):
        client.put("mail", delay=delay)
    job = client.pop("mail")
    assert job is not None
    job.bury("by the test")
    client.pause("mail")
    looker = client if api else amqp_client
    wait_until(lambda: looker.stats("mail").topics[0].buried == 1)
    found = looker.stats("mail", "nothing")
    (mail,) = found.topics
    assert (mail.topic, mail.ready, mail.buried, mail.paused) == ("mail", 1, 1, True)
    assert found.missing == ("nothing",)
    counts = [(one.hop.label, one.jobs) for one in found.delayed]
    assert counts == [("30m", 2), ("2h", 1)]
    assert found.delayed_jobs == 3
    assert (found.unrouted, found.deletes_error) == (0, None)
    assert (found.management_error is None) == (found.dead_lettering is not None) == api
    assert looker.stats("mail", delayed=False).delayed == ()


def test_stats_of_all_topics_need_the_management_api(client: Client, amqp_client: Client) -> None:
    client.topology.apply(topics=["a", "b"])
    assert [one.topic for one in client.stats().topics] == ["a", "b"]
    found = amqp_client.stats()
    assert found.topics == ()
    assert "no management API answers" in (found.management_error or "")
    with pytest.raises(ManagementUnreachable, match="name the topics"):
        amqp_client.topics()
    assert [one.topic for one in amqp_client.topics("b")] == ["b"]


def test_counts_do_not_need_the_log_of_deletes(client: Client, change: Change) -> None:
    client.topology.apply(topics="mail")
    change(lambda channel: channel.queue_delete(client.topology.tombstones))
    counted = client.count("mail")
    assert counted is not None
    assert (counted.ready, counted.buried, counted.paused) == (0, 0, None)
    assert client.count("nothing") is None
    assert client.stats("mail").topics[0].paused is False, "nothing was ever paused"


def test_stats_of_a_namespace_that_does_not_exist_are_refused(client: Client) -> None:
    """Zeros for a misspelt namespace would look like an idle one."""
    with pytest.raises(NamespaceMissing, match="there is no namespace"):
        client.stats()


def test_new_hold_queues_are_found_without_the_management_api(
    client: Client, amqp_client: Client
) -> None:
    """The client asks for missing hold queues in turns."""
    client.topology.apply()
    assert amqp_client.stats().delayed == ()
    client.put("mail", delay=86_400)
    wait_until(lambda: amqp_client.stats().delayed_jobs == 1)


def test_namespaces_are_listed_with_their_jobs(client: Client, amqp_client: Client) -> None:
    own = client.topology.namespace
    client.put("mail", delay=3600)
    wait_until(lambda: {one.namespace: one for one in client.namespaces()}[own].jobs.delayed == 1)
    with pytest.raises(ManagementUnreachable):
        amqp_client.namespaces()


def test_a_missing_namespace_is_an_error_that_suggests_a_similar_one(
    client: Client, make_client: ClientFactory, shared_broker: SharedBroker
) -> None:
    client.topology.apply()
    client.topology.require()
    own, api = client.topology.namespace, shared_broker.management.url
    misspelt = make_client(namespace=f"{own}x", management_url=api)
    with pytest.raises(NamespaceMissing, match=f"did you mean {own}"):
        misspelt.topology.require()
    with pytest.raises(NamespaceMissing, match=f"did you mean {own}"):
        misspelt.topology.remove()
    with pytest.raises(NamespaceMissing, match="check"):
        make_client(namespace=f"{own}x", management_url=NO_API).topology.require()


# remove


def test_an_empty_namespace_is_removed(client: Client, shared_broker: SharedBroker) -> None:
    client.topology.apply(topics="mail", delays=[60])
    planned = client.topology.remove(dry_run=True)
    assert client.topology.exists()
    progress: list[tuple[int, int]] = []
    removed = client.topology.remove(on_progress=lambda *step: progress.append(step))
    assert removed == planned
    assert progress[-1] == (steps := len(removed.queues) + len(removed.exchanges), steps)
    assert not client.topology.exists()
    for kind in ("queues", "exchanges"):
        prefix = f"{client.topology.namespace}."
        assert shared_broker.management.names(kind, prefix) == []


def test_a_namespace_with_jobs_is_removed_only_by_force(client: Client) -> None:
    client.put("mail", delay=3600)
    client.put("mail")
    with pytest.raises(NamespaceInUse, match="1 delayed, 1 ready"):
        client.topology.remove()
    removed = client.topology.remove(force=True)
    assert (removed.jobs.delayed, removed.jobs.ready) == (1, 1)
    assert not client.topology.exists()


def test_removing_needs_the_management_api(client: Client, amqp_client: Client) -> None:
    client.topology.apply()
    with pytest.raises(ManagementUnreachable):
        amqp_client.topology.remove()
    assert client.topology.exists()


# examine


def test_an_examination_has_steps_and_findings(client: Client, amqp_client: Client) -> None:
    client.topology.apply(topics="mail")
    steps: list[str] = []
    checks = {check.name: check for check in client.examine(on_step=steps.append)}
    assert len(checks) >= 18
    assert "counting jobs" in steps
    assert checks["permissions"].status == "ok"
    wait_until(lambda: "problem" not in {check.status for check in client.examine()})
    over_amqp = {check.name: check.status for check in amqp_client.examine()}
    assert over_amqp["nodes"] == over_amqp["topology"] == "unknown"
    assert over_amqp["permissions"] == over_amqp["delete log"] == "ok"


def test_an_examination_creates_nothing(client: Client) -> None:
    checks = {check.name: check.status for check in client.examine()}
    assert checks["topology"] == "warning"
    assert not client.topology.exists()


# Administration beside other calls


def test_administration_does_not_affect_the_clients_jobs(client: Client) -> None:
    """Each administration call uses a connection of its own and closes it."""
    client.put("mail")
    job = client.pop("mail")
    assert job is not None
    client.topology.apply(topics=["mail", "other"])
    client.topology.verify()
    client.examine()
    job.finish()
    assert client.pop("mail") is None


def test_a_closed_client_refuses_administration(make_client: ClientFactory) -> None:
    client = make_client()
    client.close()
    for call in (client.topology.apply, client.topology.exists, client.stats):
        with pytest.raises(Exception, match="the client is closed"):
            call()


def test_administration_without_a_broker_raises_in_time(front: Front) -> None:
    client = front.client("amqp://127.0.0.1:1,amqp://localhost:2", connect_timeout=0)
    began = time.monotonic()
    for call in (client.topology.exists, client.topology.apply, client.stats, client.examine):
        with pytest.raises(Exception, match=r"amqp://guest:\*\*\*@localhost:2"):
            call()
    assert time.monotonic() - began < patience(15)


def test_administration_tries_further_addresses(
    make_client: ClientFactory, broker_url: str
) -> None:
    client = make_client(f"amqp://127.0.0.1:1,{broker_url}", connect_timeout=0)
    assert not client.topology.exists()
    assert client.put("mail").topic == "mail"
