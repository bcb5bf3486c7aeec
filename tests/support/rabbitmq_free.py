"""The tests that need no RabbitMQ: `--no-rabbitmq` selects them, for `make test-unit`.

They are the unit tests, and the tests of the conformance suite on the broker in memory. A test
that asks for RabbitMQ all the same fails: see the fixture `rabbitmq`.
"""

from pathlib import Path

import pytest

from tests.support.fronts import IN_MEMORY

UNIT = Path(__file__).parents[1] / "unit"
FIXTURE = "rabbitmq"
"""The fixture that every way to RabbitMQ leads through."""


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need RabbitMQ."""
    left_out = [item for item in items if not includes(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if includes(item)]


def permit(*, is_excluded: bool) -> None:
    """Fail the test that asks for RabbitMQ, if RabbitMQ is excluded."""
    if is_excluded:
        pytest.fail("this test uses RabbitMQ, which --no-rabbitmq excludes")


def includes(item: pytest.Item) -> bool:
    """Whether a test needs no RabbitMQ."""
    return is_in_memory(item) or (item.path.is_relative_to(UNIT) and not asks_for_rabbitmq(item))


def is_in_memory(item: pytest.Item) -> bool:
    """Whether a test's front end uses the broker in memory."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and str(callspec.params.get("front", "")).endswith(IN_MEMORY)


def asks_for_rabbitmq(item: pytest.Item) -> bool:
    """Whether a test has a fixture that uses RabbitMQ in any case."""
    return FIXTURE in getattr(item, "fixturenames", ())
