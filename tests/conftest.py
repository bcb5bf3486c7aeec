"""The fixtures that every test may use: a shared broker, a namespace, a broker to break."""

import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import FrameType

import pytest

from rabbitdelay.broker import PrivateBroker
from tests.support import brokers
from tests.support.brokers import SharedBroker

PrivateBrokerFactory = Callable[..., PrivateBroker]


def pytest_configure() -> None:
    """Let a SIGTERM end the run as Ctrl-C does: with every broker stopped."""
    signal.signal(signal.SIGTERM, _interrupt)


def pytest_report_header() -> str:
    """Say which broker the run is on."""
    return f"broker: {brokers.describe()}"


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[SharedBroker]:
    """The broker that all tests share, with its management API."""
    with brokers.shared_broker() as shared:
        yield shared


@pytest.fixture(scope="session")
def broker_url(shared_broker: SharedBroker) -> str:
    """The AMQP URL of the shared broker."""
    return shared_broker.url


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace that no other test has; what it leaves on the shared broker is deleted."""
    name = f"t{secrets.token_hex(4)}"
    yield name
    if "shared_broker" in request.fixturenames:
        shared: SharedBroker = request.getfixturevalue("shared_broker")
        shared.management.delete_namespace(name)


@pytest.fixture
def start_private_broker() -> Iterator[PrivateBrokerFactory]:
    """Start a broker of the test's own, which it may kill: `nodes=` and `extra_config=`."""
    with ExitStack() as brokers_to_end:

        def start(
            *, nodes: int = 1, extra_config: Mapping[str, str] | None = None
        ) -> PrivateBroker:
            broker = PrivateBroker.temporary(nodes=nodes, extra_config=extra_config)
            return brokers_to_end.enter_context(broker)

        yield start


@pytest.fixture
def private_broker(start_private_broker: PrivateBrokerFactory) -> PrivateBroker:
    """A node of the test's own, which it may kill."""
    return start_private_broker()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
