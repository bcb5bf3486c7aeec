"""Fixtures for all tests: a shared broker, a namespace of the test's own, a broker to break."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import FrameType
from typing import Any

import hypothesis
import pytest
from xdist.remote import Producer

from rabbitdelay import Client, Worker
from rabbitdelay.core.topology.topology import QueueType, Topology
from rabbitdelay.private_broker import PrivateBroker
from tests.support import rabbitmq_free, xdist_workers
from tests.support.brokers import suite_broker
from tests.support.brokers.receiver import Receiver
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.client_options import CLIENT_OPTIONS, WORKER_OPTIONS
from tests.support.fronts import Front, front_named
from tests.support.jobs.looker import Looker
from tests.support.patience import patience
from tests.support.xdist_workers import GroupScheduling

# Hypothesis's deadline would fail a test on a busy machine, so it is off.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

PrivateBrokerFactory = Callable[..., PrivateBroker]
ClientFactory = Callable[..., Client]
WorkerFactory = Callable[..., Worker]
LookerFactory = Callable[..., Looker]
ReceiverFactory = Callable[..., Receiver]
TopicsFactory = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-unit`."""
    parser.addoption(
        "--no-rabbitmq", action="store_true", help="run only tests that need no RabbitMQ"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Treat SIGTERM like Ctrl-C, so that an ended run stops every broker it started."""
    signal.signal(signal.SIGTERM, _interrupt)
    suite_broker.keep_files_in_memory()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        xdist_workers.prepare(starts_brokers=not config.getoption("no_rabbitmq"))
    elif config.getoption("numprocesses") and not config.getoption("no_rabbitmq"):
        suite_broker.require()  # xdist workers without a broker cannot end the run


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Scale every test's time limit by the factor that `patience` applies.

    Select and arrange the tests of the run.
    """
    for item in items:
        mark = item.get_closest_marker("timeout")
        seconds = mark.args[0] if mark else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(patience(seconds)), append=False)
    if config.getoption("no_rabbitmq"):
        rabbitmq_free.select(config, items)
    if os.environ.get("PYTEST_XDIST_WORKER"):
        xdist_workers.arrange(items)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Give the workers time to write what coverage measured, or to stop their brokers."""
    xdist_workers.extend_exit(session.config)
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        xdist_workers.interrupt(session.config)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Return the scheduler that distributes the tests of a parallel run."""
    return GroupScheduling(config, log)


def pytest_report_header(config: pytest.Config) -> str:
    """Name the broker of this run in the report's header."""
    is_in_memory = config.getoption("no_rabbitmq")
    return f"broker: {'in memory' if is_in_memory else suite_broker.describe()}"


@pytest.fixture(scope="session")
def rabbitmq(pytestconfig: pytest.Config) -> None:
    """The permission to use RabbitMQ. Every fixture that starts or finds one requests it."""
    rabbitmq_free.permit(is_excluded=pytestconfig.getoption("no_rabbitmq"))


@pytest.fixture(scope="session")
def shared_broker(rabbitmq: None) -> Iterator[SharedBroker]:  # noqa: ARG001 - permission
    """The broker that all tests share, with its management API."""
    with suite_broker.shared_broker() as shared:
        yield shared


@pytest.fixture(scope="session")
def broker_url(shared_broker: SharedBroker) -> str:
    """The AMQP URL of the shared broker."""
    return shared_broker.url


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace unique to the test. Its queues and exchanges are deleted at the end."""
    name = f"t{secrets.token_hex(4)}"
    yield name
    if "shared_broker" in request.fixturenames:
        shared: SharedBroker = request.getfixturevalue("shared_broker")
        shared.management.delete_namespace(name)


@pytest.fixture
def breakable_broker(rabbitmq: None) -> Iterator[PrivateBroker]:  # noqa: ARG001 - permission
    """A broker of the test's own, which it may kill. No other test uses it afterwards.

    RabbitMQ 3.10 may answer every declare with INTERNAL_ERROR after it was killed several times.
    """
    with PrivateBroker.temporary() as broker:
        yield broker


@pytest.fixture
def start_private_broker(rabbitmq: None) -> Iterator[PrivateBrokerFactory]:  # noqa: ARG001 - permission
    """Start brokers of the test's own, for tests that need options `breakable_broker` lacks."""
    with ExitStack() as brokers_to_end:

        def start(
            *, nodes: int = 1, extra_config: Mapping[str, str] | None = None
        ) -> PrivateBroker:
            broker = PrivateBroker.temporary(nodes=nodes, extra_config=extra_config)
            return brokers_to_end.enter_context(broker)

        yield start


@pytest.fixture
def front() -> Iterator[Front]:
    """The front end that a test uses: sync by default, both of them in tests/conformance."""
    with front_named("sync") as front:
        yield front


@pytest.fixture
def make_client(front: Front, broker_url: str, namespace: str) -> Iterator[ClientFactory]:
    """Create clients in the test's namespace. They are closed at the end of the test."""
    with ExitStack() as stack:

        def make(url: str = broker_url, **options: Any) -> Client:  # noqa: ANN401 - passed on
            settings = CLIENT_OPTIONS | {"namespace": namespace} | options
            return stack.enter_context(front.client(url, **settings))

        yield make


@pytest.fixture
def client(make_client: ClientFactory) -> Client:
    return make_client()


@pytest.fixture
def make_topics(broker_url: str, namespace: str) -> TopicsFactory:
    """Create the namespace and topics in it, as `topology apply` does."""

    def make(*topics: str, queue_type: QueueType = "quorum") -> None:
        client = Client(broker_url, namespace=namespace, queue_type=queue_type, **CLIENT_OPTIONS)
        client.topology.apply(topics=topics)

    return make


@pytest.fixture
def existing_namespace(make_topics: TopicsFactory) -> None:
    """A namespace that exists: delete, pause and pop do not create one, only a put does."""
    make_topics()


@pytest.fixture
def receive(broker_url: str, namespace: str) -> Iterator[ReceiverFactory]:
    """Start plain AMQP consumers of a topic's ready queue. They are stopped at the end."""
    with ExitStack() as stack:

        def start(topic: str) -> Receiver:
            return stack.enter_context(Receiver(broker_url, f"{namespace}.v1.ready.{topic}"))

        yield start


@pytest.fixture
def make_worker(front: Front, broker_url: str, namespace: str) -> WorkerFactory:
    """Create workers in the test's namespace. Run them with `working`."""

    def make(url: str = broker_url, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        settings = WORKER_OPTIONS | {"namespace": namespace} | options
        return front.worker(url, **settings)

    return make


@pytest.fixture
def buried(broker_url: str, namespace: str) -> Iterator[LookerFactory]:
    """Read the buried queue of a topic. Its messages stay in the queue."""
    with ExitStack() as stack:

        def look(topic: str) -> Looker:
            client = stack.enter_context(Client(broker_url, namespace=namespace, **CLIENT_OPTIONS))
            return stack.enter_context(Looker(client, Topology(namespace).buried_queue(topic)))

        yield look


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
