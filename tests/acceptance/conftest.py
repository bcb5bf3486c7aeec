"""Fixtures for the tests of the command line."""

import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from rabbitdelay.cli import root
from tests.support.brokers.suite_broker import SharedBroker

CommandLine = Callable[..., Result]


@pytest.fixture
def options(shared_broker: SharedBroker, namespace: str) -> list[str]:
    """Global options of the command line.

    Commands do not wait for new queues to stabilise, which saves 3 s in every test.
    """
    return [
        *("--url", shared_broker.url, "--namespace", namespace, "--stabilise-seconds", "0"),
        *("--management-url", shared_broker.management.url),
    ]


@pytest.fixture
def rabbitdelay(options: list[str]) -> CommandLine:
    """Run the command line in the test's namespace."""

    def run(*arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(root, [*options, *arguments], input=input)

    return run


@pytest.fixture
def program() -> list[str]:
    """The command line as a process of its own, for tests of signals and pipes."""
    return [sys.executable, "-m", "rabbitdelay"]


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the developer's settings and running brokers from the command line."""
    names = ("URL", "NAMESPACE", "QUEUE_TYPE", "MANAGEMENT_URL", "STABILISE_SECONDS", "MAX_DELAY")
    for name in (*names, "CONNECT_TIMEOUT", "TIMEOUT", "DECLARE"):
        monkeypatch.delenv(f"RABBITDELAY_{name}", raising=False)
    monkeypatch.delenv("RABBITDELAY_BROKER_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/nonexistent")
