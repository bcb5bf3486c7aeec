"""The pytest plugin: fixtures for tests of jobs, in memory or on a real RabbitMQ.

pytest imports this file in every project that has rabbitdelay installed, so it is outside the
package and imports nothing of it until a test uses a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rabbitdelay.testing import MemoryBroker, RabbitBroker
    from rabbitdelay.testing.rabbit_broker import Server


@pytest.fixture
def rabbitdelay_memory() -> "Iterator[MemoryBroker]":
    """A broker in memory, whose clock the test moves."""
    from rabbitdelay.testing import MemoryBroker  # noqa: PLC0415 - see above

    with MemoryBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitdelay_server() -> "Iterator[Server]":
    """A private RabbitMQ node for all tests, or what RABBITDELAY_TEST_URL names."""
    from rabbitdelay.testing import rabbit_broker  # noqa: PLC0415 - see above

    with rabbit_broker.started() as server:
        yield server


@pytest.fixture
def rabbitdelay_broker(rabbitdelay_server: "Server") -> "Iterator[RabbitBroker]":
    """A real RabbitMQ, with a namespace of the test's own."""
    from rabbitdelay.testing import RabbitBroker  # noqa: PLC0415 - see above

    with RabbitBroker(rabbitdelay_server) as broker:
        yield broker
