"""The conformance suite: tests of the product's promises, run against both front ends.

Each front end runs against RabbitMQ and against the broker in memory, which is held to RabbitMQ in
this way: where the two differ, a test fails.
"""

from collections.abc import Iterator

import pytest

from tests.support import fronts
from tests.support.fronts import Front, front_named
from tests.support.memory import exceptions
from tests.support.rabbitmq_free import is_in_memory


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the broker in memory cannot be tested with."""
    left_out = [item for item in items if is_in_memory(item) and exceptions.reason(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(params=fronts.WITH_MEMORY)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    """Each front end in turn, against each broker."""
    with front_named(request.param) as front:
        yield front


@pytest.fixture
def broker_url(front: Front, request: pytest.FixtureRequest) -> str:
    """The AMQP URL of the broker in memory, else of the shared broker."""
    return front.url or str(request.getfixturevalue("shared_broker").url)
