"""A private broker in Docker, with the stand-in of tests/support for the engine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from rabbitdelay import Client
from rabbitdelay.private_broker import PrivateBroker, find_running
from rabbitdelay.private_broker.node.settings import read_settings
from tests.support.brokers import private_brokers, standin_docker, suite_broker
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.patience import patience, wait_until


@dataclass(frozen=True)
class Machine:
    """A machine whose only source of a broker is Docker."""

    directory: Path
    containers: Path

    @property
    def broker(self) -> PrivateBroker:
        return PrivateBroker(self.directory)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `rabbitdelay broker` under the strictest umask."""
        return subprocess.run(
            [sys.executable, "-m", "rabbitdelay", "broker", *arguments],
            env=os.environ | {"RABBITDELAY_BROKER_DIR": str(self.directory)},
            capture_output=True,
            text=True,
            umask=0o077,
            timeout=patience(90),
            check=False,
        )

    def names(self) -> list[str]:
        """Return the names of all containers, running or not."""
        return [path.stem for path in self.containers.glob("*.json")]


@pytest.fixture
def machine(
    shared_broker: SharedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    containers = standin_docker.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv(standin_docker.FOLDER, str(containers))
    monkeypatch.setenv(standin_docker.AMQP, str(urlsplit(shared_broker.url).port))
    monkeypatch.setenv(standin_docker.MANAGEMENT, str(urlsplit(shared_broker.management.url).port))
    monkeypatch.delenv("RABBITDELAY_RABBITMQ_ROOT", raising=False)
    monkeypatch.setattr(private_brokers, "is_in_docker", lambda: True)
    machine = Machine(tmp_path / "broker", containers)
    yield machine
    machine.broker.discard()
    assert machine.names() == []


def test_a_container_is_started_stopped_and_started_again(machine: Machine, namespace: str) -> None:
    """This also works under umask 077. The container and its ports are kept."""
    started = machine("start", "--docker")
    assert started.returncode == 0, started.stderr
    (name,) = machine.names()
    url = machine.broker.url
    assert url in started.stdout
    with Client(url, namespace=namespace, stabilise_seconds=0, timeout=patience(20)) as client:
        client.put("t", delay=60)
    assert private_brokers.traces(machine.directory) == [name]
    assert "Already running." in machine("start").stdout

    assert "Stopped." in machine("stop").stdout
    assert private_brokers.traces(machine.directory) == []
    assert machine.names() == [name]
    assert machine("start").returncode == 0
    assert machine.names() == [name]
    assert machine.broker.url == url


def test_a_port_taken_by_another_container_is_reported(machine: Machine) -> None:
    (machine.containers / "taken").touch()
    refused = machine("start", "--docker")
    assert refused.returncode == 1
    assert "is taken by another container or program" in refused.stderr
    assert "already allocated" not in refused.stderr
    assert machine.names() == []


def test_a_container_that_was_killed_from_outside_is_not_running(machine: Machine) -> None:
    assert machine("start", "--docker").returncode == 0
    private_brokers.kill_from_outside(machine.broker)
    wait_until(lambda: find_running(machine.directory) is None)
    assert machine.broker.was_started
    status = machine("status", "--json")
    assert status.returncode == 3
    assert json.loads(status.stdout)["nodes"][0]["pid"] is None


def test_the_settings_of_a_node_are_read(machine: Machine) -> None:
    assert machine("start", "--docker").returncode == 0
    (node,) = machine.broker.nodes
    assert read_settings(node) == {
        "dead_letter_worker_publisher_confirm_timeout": 5_000,
        "consumer_timeout": 1_800_000,
        "max_message_size": 16_777_216,
    }


@pytest.mark.parametrize(
    ("has_image", "has_server", "prefers_docker"),
    [(False, True, False), (True, True, True), (False, False, True)],
)
def test_the_suite_uses_docker_only_if_it_can_get_the_image_or_has_no_other_broker(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_image: bool,
    has_server: bool,
    prefers_docker: bool,
) -> None:
    if has_image:
        (machine.containers / "image").touch()
    server = SimpleNamespace() if has_server else None
    monkeypatch.setattr(suite_broker, "find_installation", lambda: server)
    assert suite_broker._prefers_docker.__wrapped__() is prefers_docker
