"""What the tests of the client share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rabbitdelay import Client, Worker
from rabbitdelay.core.topology import Topology
from tests.support.receiver import Receiver
from tests.support.working import Looker

ClientFactory = Callable[..., Client]
WorkerFactory = Callable[..., Worker]
LookerFactory = Callable[..., Looker]
ReceiverFactory = Callable[..., Receiver]


@pytest.fixture
def make_client(broker_url: str, namespace: str) -> Iterator[ClientFactory]:
    """Clients of this test's namespace, closed at its end.

    They do not wait for new queues to settle: only the tests that kill a broker need that.
    """
    with ExitStack() as stack:

        def make(url: str = broker_url, **options: Any) -> Client:  # noqa: ANN401 - passed on
            settings: dict[str, Any] = {
                "namespace": namespace,
                "settle_seconds": 0,
                "timeout": 20.0,
            } | options
            return stack.enter_context(Client(url, **settings))

        yield make


@pytest.fixture
def client(make_client: ClientFactory) -> Client:
    return make_client()


@pytest.fixture
def receive(broker_url: str, namespace: str) -> Iterator[ReceiverFactory]:
    """Plain consumers of a topic's ready queue, stopped at the end."""
    with ExitStack() as stack:

        def start(topic: str) -> Receiver:
            return stack.enter_context(Receiver(broker_url, f"{namespace}.v1.ready.{topic}"))

        yield start


@pytest.fixture
def make_worker(broker_url: str, namespace: str) -> WorkerFactory:
    """Workers of this test's namespace; run them with `working`."""

    def make(url: str = broker_url, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        settings: dict[str, Any] = {"namespace": namespace, "settle_seconds": 0} | options
        return Worker(url, **settings)

    return make


@pytest.fixture
def buried(client: Client, namespace: str) -> Iterator[LookerFactory]:
    """Lookers into the buried queue of a topic, which takes out what is in it."""
    with ExitStack() as stack:

        def look(topic: str) -> Looker:
            return stack.enter_context(Looker(client, Topology(namespace).buried_queue(topic)))

        yield look
