"""The permissions in docs/operations.md suffice: the tests run its commands as its users."""

import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from rabbitdelay import (
    Bury,
    Client,
    Job,
    JobSpec,
    PermissionRefused,
    Retry,
    TopologyMissing,
)
from rabbitdelay.cli import root
from rabbitdelay.private_broker import PrivateBroker
from tests.support import fronts
from tests.support.fronts import Front, front_named
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
GRANTS = re.findall(r"^\$ rabbitmqctl (set_permissions --vhost shop (\w+) .+)$", PAGE, re.MULTILINE)
TOPIC, OTHER = "orderclose", "mail"
DELAYS_SECONDS = (0, 0.03, 3_600, 40 * 86_400)


class Shop:
    """A broker with the users, the vhost and the namespace of the page."""

    def __init__(self, broker: PrivateBroker) -> None:
        self._port = urlsplit(broker.url).port
        node = broker.nodes[0]
        node.control("add_vhost", "shop")
        for line, user in GRANTS:
            node.control("add_user", user, user)
            node.control(*shlex.split(line))

    def url(self, user: str) -> str:
        """Return the URL of a user."""
        return f"amqp://{user}:{user}@127.0.0.1:{self._port}/shop"

    def client(self, user: str, front: Front, *, declare: bool) -> Client:
        """Return a client of a user."""
        seconds = patience(10)
        return front.client(self.url(user), declare=declare, stabilise_seconds=0, timeout=seconds)

    def run(self, user: str, *arguments: str, **environment: str) -> Result:
        """Run the command line as a user."""
        settings = {"RABBITDELAY_URL": self.url(user), "RABBITDELAY_STABILISE_SECONDS": "0"}
        return CliRunner().invoke(root, list(arguments), env=settings | environment)


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """A broker on which the deployer has created the queues for the delays used here."""
    with PrivateBroker.temporary() as broker:
        shop = Shop(broker)
        with Client(shop.url("deployer"), stabilise_seconds=0) as deployer:
            for topic in (TOPIC, OTHER):
                deployer.put_many(JobSpec(topic, delay=delay) for delay in DELAYS_SECONDS)
                deployer.purge(topic)
        yield shop


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.fixture(params=fronts.NAMES)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    """Each front end in turn."""
    with front_named(request.param) as front:
        yield front


@pytest.mark.parametrize("declare", [False, True])
def test_a_putter_puts_and_deletes(
    shop: Shop,
    front: Front,
    caplog: pytest.LogCaptureFixture,
    declare: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """This works with declare=True too, because every queue that the putter needs exists."""
    with shop.client("putter", front, declare=declare) as client:
        client.put_many(JobSpec(TOPIC, 1, delay=delay) for delay in DELAYS_SECONDS)
        far = client.put(TOPIC, 1, id="far", delay=DELAYS_SECONDS[-1])
        client.reschedule(far, delay=3_600)
        client.replace(TOPIC, 1, id="far", delay=3_600)
        client.delete("far")
        client.delete_many(["far", far])
        client.pause(TOPIC)
        client.resume(TOPIC)
    # A client that may not declare is refused once, which aiormq does not log.
    assert caplog.text.count("(403)") <= (1 if declare else 0)
    assert declare or "ACCESS_REFUSED" not in caplog.text


def test_a_putter_may_not_take_jobs(shop: Shop, front: Front) -> None:
    with shop.client("putter", front, declare=False) as client:
        for read in (client.pop, client.purge, client.topics):
            with pytest.raises(PermissionRefused):
                read(TOPIC)
        with pytest.raises(TopologyMissing, match="replies"):
            client.put(TOPIC, 1, reply=True)


def test_a_user_that_may_not_declare_cannot_create_a_topic(shop: Shop, front: Front) -> None:
    for user in ("putter", "consumer"):
        with (
            shop.client(user, front, declare=False) as client,
            pytest.raises(TopologyMissing, match=r"ready\.new"),
        ):
            client.put("new")
        with shop.client(user, front, declare=True) as client:
            client.put(TOPIC)
            with pytest.raises(PermissionRefused, match=r"topology apply --topic new.*configure"):
                client.put("new")


@pytest.mark.parametrize(
    ("user", "declare"), [("consumer", False), ("consumer", True), ("deployer", True)]
)
def test_a_consumer_settles_jobs_in_every_way(
    shop: Shop,
    front: Front,
    user: str,
    declare: bool,  # noqa: FBT001 - a parameter of the test
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The consumer finishes, retries, buries and responds to jobs, and drops deleted ones."""
    with shop.client("deployer", front, declare=True) as deployer:
        deployer.purge(TOPIC)
        jobs = {
            body: deployer.put(TOPIC, body, delay=0.03, reply=True)
            for body in ("finish", "now", "later", "bury", "deleted")
        }
        deployer.delete(jobs["deleted"])
        worker = front.worker(shop.url(user), declare=declare, stabilise_seconds=0, grace=5)
        worker.handler(TOPIC)(handle)
        with working(worker):
            for body in ("finish", "now", "later"):
                response = deployer.response(jobs[body], wait=patience(20))
                assert response is not None
                assert response.body == [body, 1 if body == "finish" else 2]
            wait_until(lambda: deployer.topics(TOPIC)[0].buried == 1)
            wait_until(lambda: worker.stats().counts.deleted == 1)
        with shop.client(user, front, declare=declare) as client:
            client.put(TOPIC, "popped")
            popped = client.pop(TOPIC, wait=patience(10))
            assert popped is not None
            popped.finish()
    if not (user == "consumer" and declare):
        assert "ACCESS_REFUSED" not in caplog.text


def handle(body: str, job: Job) -> Any:  # noqa: ANN401 - JSON
    if body == "bury":
        raise Bury("as the test wants it")
    if body != "finish" and job.attempt == 1:
        raise Retry("once more", delay=0 if body == "now" else 0.03)
    return [body, job.attempt]


def test_a_consumer_may_take_only_its_own_topic(shop: Shop, front: Front) -> None:
    with (
        shop.client("consumer", front, declare=False) as client,
        pytest.raises(PermissionRefused, match=rf"ready\.{OTHER}"),
    ):
        client.pop(OTHER)


def test_a_user_with_the_whole_namespace_creates_topics(shop: Shop, front: Front) -> None:
    with shop.client("deployer", front, declare=True) as client:
        job = client.put("created", 1, delay=1.5, reply=True)
        assert job.topic == "created"


# The command line


DECLARES = [(), ("--declare",), ("--no-declare",)]
"""Without an option, a command detects that its user may not declare."""


@pytest.mark.parametrize("options", DECLARES)
def test_a_putter_uses_the_command_line(shop: Shop, options: tuple[str, ...]) -> None:
    put = shop.run("putter", *options, "put", TOPIC, "x", "--id", "x", "--delay", "1h")
    assert (put.exit_code, put.stderr) == (0, "")
    put = shop.run("putter", *options, "put", TOPIC, "x", "--id", "x", "--delay", "1h", "--replace")
    assert (put.exit_code, put.stderr) == (0, "")
    for arguments in (("delete", "x"), ("pause", TOPIC), ("resume", TOPIC)):
        done = shop.run("putter", *options, *arguments)
        assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("options", DECLARES)
def test_a_consumer_uses_the_command_line(shop: Shop, options: tuple[str, ...]) -> None:
    assert shop.run("deployer", "purge", TOPIC, "--yes").exit_code == 0
    for body in ("first", "second"):
        assert shop.run("consumer", *options, "put", TOPIC, body).exit_code == 0
    popped = shop.run("consumer", *options, "pop", TOPIC, "--wait", str(patience(10)))
    assert (popped.exit_code, popped.stdout) == (0, "first\n")
    consumed = shop.run(*("consumer", *options, "consume", TOPIC, "--print", "--max-jobs", "1"))
    assert consumed.exit_code == 0, consumed.output
    assert "second" in consumed.stdout


def test_the_environment_disables_declaring(shop: Shop) -> None:
    """The error is then about declaring, not about a permission."""
    refused = shop.run("putter", "put", "unknown", "x")
    told = shop.run("putter", "put", "unknown", "x", RABBITDELAY_DECLARE="0")
    assert refused.exit_code == told.exit_code == 1
    assert "403" in refused.stderr
    assert "403" not in told.stderr
    assert "ready.unknown" in told.stderr
    by_deployer = shop.run("deployer", "put", "newer", "x", RABBITDELAY_DECLARE="false")
    assert by_deployer.exit_code == 1
    assert "ready.newer" in by_deployer.stderr
    overruled = shop.run("deployer", "--declare", "put", "newer", "x", RABBITDELAY_DECLARE="false")
    assert overruled.exit_code == 0


def test_a_putter_applies_only_topics_that_exist(shop: Shop) -> None:
    assert shop.run("putter", "topology", "apply", "--topic", TOPIC).exit_code == 0
    refused = shop.run("putter", "topology", "apply", "--topic", "unheard-of")
    assert refused.exit_code == 1
    assert "configure" in refused.stderr
    contradiction = shop.run("deployer", "--no-declare", "topology", "apply")
    assert contradiction.exit_code == 2
