"""`rabbitdelay broker`, run as a command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pytest

from rabbitdelay import discovery
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.private_broker import PrivateBroker, find_running
from tests.support.brokers.private_brokers import kill_from_outside, traces
from tests.support.patience import patience, wait_until

RABBITDELAY = [sys.executable, "-m", "rabbitdelay"]


@dataclass(frozen=True)
class BrokerCommand:
    """`rabbitdelay broker`, with a temporary default folder."""

    directory: Path

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            [*RABBITDELAY, "broker", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patience(90),
            check=False,
        )

    def background(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command in the background."""
        command = [*RABBITDELAY, "broker", *arguments]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run the command to its end and return its JSON output."""
        answer: dict[str, Any] = json.loads(self(*arguments, "--json").stdout)
        return answer

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "RABBITDELAY_BROKER_DIR": str(self.directory)}

    @property
    def traces(self) -> list[str]:
        """All that runs for the folder: the node, its helpers, epmd, or a container."""
        return traces(self.directory)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerCommand]:
    command = BrokerCommand(tmp_path / "broker")
    yield command
    PrivateBroker(command.directory).discard()


def test_two_concurrent_starts_create_one_broker(broker: BrokerCommand) -> None:
    with ThreadPoolExecutor() as pool:  # the second start waits for the first
        first, second = pool.map(broker, ["start", "start"])
    assert first.returncode == second.returncode == 0
    assert ("Already running." in first.stdout) != ("Already running." in second.stdout)

    status = broker.json("status")
    assert status["running"]
    assert status["url"] in first.stdout
    assert status["url"] in second.stdout
    assert status["management_url"] in first.stdout
    text = broker("status").stdout
    assert f"process        {status['nodes'][0]['pid']}\n" in text
    assert f"Folder: {broker.directory}\n" in text
    assert "export" not in text
    found = find_running(broker.directory)
    assert found is not None
    assert found.url == status["url"]

    assert broker("start", "--nodes", "3").returncode == 2
    assert broker("start", "--port", "5672").returncode == 2


def test_the_data_and_the_url_are_kept_from_one_start_to_the_next(broker: BrokerCommand) -> None:
    url = broker.json("start")["url"]
    publish_persistent(url)
    assert "Stopped." in broker("stop").stdout
    assert broker.traces == []
    assert find_running(broker.directory) is None

    running = broker.background("run", "--json")
    assert running.stdout is not None
    assert json.loads("".join(iter(running.stdout.readline, "}\n")) + "}")["url"] == url
    assert holds_a_message(url)

    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=patience(30))
    assert running.returncode == 0
    assert broker.traces == []


def test_a_broker_that_ended_unexpectedly_is_not_replaced_by_localhost(
    broker: BrokerCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only after a stop or another start does discovery fall back to localhost."""
    monkeypatch.delenv("RABBITDELAY_URL", raising=False)
    monkeypatch.setenv("RABBITDELAY_BROKER_DIR", str(broker.directory))
    status = broker.json("start")
    assert discovery.locate_url() == status["url"]
    kill_from_outside(PrivateBroker(broker.directory))
    wait_until(lambda: broker.json("status")["nodes"][0]["pid"] is None)

    with pytest.raises(InvalidConfiguration, match="was started and is not running"):
        discovery.locate_url()
    assert broker("stop").returncode == 0
    assert broker.traces == []
    with pytest.raises(InvalidConfiguration, match="but no broker is running there"):
        discovery.locate_url()
    monkeypatch.setenv("XDG_STATE_HOME", "/nonexistent")
    monkeypatch.delenv("RABBITDELAY_BROKER_DIR")
    assert discovery.locate_url() == discovery.DEFAULT_URL


def test_a_start_in_another_folder_prints_the_export_line(
    broker: BrokerCommand, tmp_path: Path
) -> None:
    folder = tmp_path / "another"
    try:
        text = broker("start", "--dir", str(folder)).stdout
        assert f"export RABBITDELAY_BROKER_DIR={folder}\n" in text
        assert f"rabbitdelay broker stop --dir {folder}\n" in text
    finally:
        PrivateBroker(folder).discard()


def test_an_interrupted_start_leaves_nothing(broker: BrokerCommand) -> None:
    starting = broker.background("start")
    wait_until(lambda: broker.traces, what="a node starts")
    starting.send_signal(signal.SIGINT)
    starting.communicate(timeout=patience(30))
    assert starting.returncode != 0
    assert broker.traces == []


def test_without_a_broker_status_exits_with_3_and_stop_says_so(broker: BrokerCommand) -> None:
    status = broker("status")
    assert status.returncode == 3
    assert "No broker is running in" in status.stdout
    assert broker.json("status")["url"] is None
    stop = broker("stop")
    assert stop.returncode == 0
    assert "No broker is running in" in stop.stdout


def publish_persistent(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        channel.basic_publish("", "kept", b"body", pika.BasicProperties(delivery_mode=2))


def holds_a_message(url: str) -> bool:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return connection.channel().basic_get("kept")[0] is not None
