"""docs/operations.md says which permissions are enough: its lines are run, and used."""

import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rabbitdelay import (
    Bury,
    Client,
    Job,
    JobSpec,
    PermissionRefused,
    Retry,
    TopologyMissing,
    Worker,
)
from rabbitdelay.broker import PrivateBroker
from tests.support.waiting import patience, wait_until
from tests.support.working import working

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
GRANTS = re.findall(r"^\$ rabbitmqctl (set_permissions --vhost shop (\w+) .+)$", PAGE, re.MULTILINE)
TOPIC, OTHER = "orderclose", "mail"
DELAYS_SECONDS = (0, 0.03, 3_600, 40 * 86_400)


class Shop:
    """A broker with the users of the page, in the vhost and the namespace that it names."""

    def __init__(self, broker: PrivateBroker) -> None:
        self._port = urlsplit(broker.url).port
        node = broker.nodes[0]
        node.control("add_vhost", "shop")
        for line, user in GRANTS:
            node.control("add_user", user, user)
            node.control(*shlex.split(line))

    def url(self, user: str) -> str:
        """Where a user enters."""
        return f"amqp://{user}:{user}@127.0.0.1:{self._port}/shop"

    def client(self, user: str, *, declare: bool) -> Client:
        """A client of a user."""
        return Client(self.url(user), declare=declare, settle_seconds=0, timeout=patience(10))


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """What `topology apply` makes for the delays used here is there, made by the deployer."""
    with PrivateBroker.temporary() as broker:
        shop = Shop(broker)
        with shop.client("deployer", declare=True) as deployer:
            for topic in (TOPIC, OTHER):
                deployer.put_many(JobSpec(topic, delay=delay) for delay in DELAYS_SECONDS)
                deployer.purge(topic)
        yield shop


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def test_a_putter_puts_and_deletes(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with shop.client("putter", declare=False) as client:
        client.put_many(JobSpec(TOPIC, 1, delay=delay) for delay in DELAYS_SECONDS)
        far = client.put(TOPIC, 1, id="far", delay=DELAYS_SECONDS[-1])
        client.reschedule(far, delay=3_600)
        client.replace(TOPIC, 1, id="far", delay=3_600)
        client.delete("far")
        client.delete_many(["far", far])
        client.pause(TOPIC)
        client.resume(TOPIC)
    assert "ACCESS_REFUSED" not in caplog.text


def test_a_putter_takes_nothing(shop: Shop) -> None:
    with shop.client("putter", declare=False) as client:
        for read in (client.pop, client.purge, client.topics):
            with pytest.raises(PermissionRefused):
                read(TOPIC)
        with pytest.raises(TopologyMissing, match="replies"):
            client.put(TOPIC, 1, reply=True)


def test_who_may_not_declare_makes_no_topic(shop: Shop) -> None:
    for user in ("putter", "consumer"):
        with (
            shop.client(user, declare=False) as client,
            pytest.raises(TopologyMissing, match=r"ready\.new"),
        ):
            client.put("new")
        with (
            shop.client(user, declare=True) as client,
            pytest.raises(PermissionRefused, match="configure"),
        ):
            client.put("new")


@pytest.mark.parametrize(("user", "declare"), [("consumer", False), ("deployer", True)])
def test_a_consumer_works(
    shop: Shop,
    user: str,
    declare: bool,  # noqa: FBT001 - a parameter of the test
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It finishes, tries again at once and later, buries, answers, and drops what is deleted."""
    with shop.client("deployer", declare=True) as deployer:
        deployer.purge(TOPIC)
        jobs = {
            body: deployer.put(TOPIC, body, delay=0.03, reply=True)
            for body in ("finish", "now", "later", "bury", "deleted")
        }
        deployer.delete(jobs["deleted"])
        worker = Worker(shop.url(user), declare=declare, settle_seconds=0, grace=5)
        worker.handler(TOPIC)(handle)
        with working(worker):
            for body in ("finish", "now", "later"):
                response = deployer.response(jobs[body], wait=patience(20))
                assert response is not None
                assert response.body == [body, 1 if body == "finish" else 2]
            wait_until(lambda: deployer.topics(TOPIC)[0].buried == 1)
            wait_until(lambda: worker.stats().counts.deleted == 1)
        with shop.client(user, declare=declare) as client:
            client.put(TOPIC, "popped")
            popped = client.pop(TOPIC, wait=patience(10))
            assert popped is not None
            popped.finish()
    assert "ACCESS_REFUSED" not in caplog.text


def handle(body: str, job: Job) -> Any:  # noqa: ANN401 - JSON
    if body == "bury":
        raise Bury("as the test wants it")
    if body != "finish" and job.attempt == 1:
        raise Retry("once more", delay=0 if body == "now" else 0.03)
    return [body, job.attempt]


def test_a_consumer_has_its_own_topic_only(shop: Shop) -> None:
    with (
        shop.client("consumer", declare=False) as client,
        pytest.raises(PermissionRefused, match=rf"ready\.{OTHER}"),
    ):
        client.pop(OTHER)


def test_with_the_namespace_topics_are_made(shop: Shop) -> None:
    with shop.client("deployer", declare=True) as client:
        job = client.put("new", 1, delay=1.5, reply=True)
        assert job.topic == "new"
