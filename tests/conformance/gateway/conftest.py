"""The gateway over HTTP beside the client itself: each promise is kept by both, in the same way."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from rabbitdelay import Client
from rabbitdelay.gateway import GatewayApp
from tests.support.fronts import IN_MEMORY, RabbitBackEnd
from tests.support.gateway.http_front import HttpFrontClient
from tests.support.gateway.served import served
from tests.support.memory.memory_back_end import MemoryBackEnd
from tests.support.patience import patience

HTTP, DIRECT = "http", "sync"
FRONTS = [f"{HTTP}-{IN_MEMORY}", HTTP, f"{DIRECT}-{IN_MEMORY}", DIRECT]


@pytest.fixture(params=FRONTS)
def front_name(request: pytest.FixtureRequest) -> str:
    """The way to the broker: over HTTP or direct, to RabbitMQ or the broker in memory."""
    return str(request.param)


@pytest.fixture
def client(front_name: str, namespace: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client, whose jobs may have passed through a gateway."""
    is_in_memory = front_name.endswith(IN_MEMORY)
    with ExitStack() as stack:
        back_end: Any = MemoryBackEnd() if is_in_memory else RabbitBackEnd()
        stack.callback(back_end.close)
        url = back_end.url or str(request.getfixturevalue("shared_broker").url)
        options = {"namespace": namespace, "stabilise_seconds": 0, **back_end.options}
        if front_name.startswith(HTTP):
            gateway = stack.enter_context(served(GatewayApp(url, **options)))
            yield cast("Client", HttpFrontClient(gateway.port))
        else:
            yield stack.enter_context(Client(url, timeout=patience(20), **options))
