"""A private broker, as the tests and the demo use it."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker import PrivateBroker, find_running
from rabbitdelay.private_broker.layout import BrokerOptions, new_layout
from rabbitdelay.private_broker.machine.ports import pick_free
from rabbitdelay.private_broker.machine.processes import ProcessRecord
from rabbitdelay.private_broker.state import save_layout, save_process
from tests.conftest import PrivateBrokerFactory
from tests.support.brokers.management import Management
from tests.support.brokers.private_brokers import traces, traces_of_node


@pytest.fixture
def idle_broker(tmp_path: Path) -> PrivateBroker:
    """A broker that has a layout and was not started."""
    save_layout(tmp_path, new_layout(tmp_path, BrokerOptions()))
    return PrivateBroker(tmp_path)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is unrelated to any broker."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_killed_node_returns_with_its_url_its_data_and_its_configuration(
    start_private_broker: PrivateBrokerFactory,
) -> None:
    broker = start_private_broker(extra_config={"cluster_name": "kept"})
    (node,) = broker.nodes
    url, first_pid = broker.url, node.pid
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        channel.basic_publish("", "kept", b"body", pika.BasicProperties(delivery_mode=2))
    # Killed right after the confirm, 3.10 came back without the queue in 1 of 10 runs.
    time.sleep(3)

    node.kill()
    assert traces_of_node(node.directory) == []
    assert find_running(broker.directory) is None

    node.start()
    assert node.pid not in {None, first_pid}
    assert broker.url == url
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        assert connection.channel().basic_get("kept")[0] is not None
    assert Management(broker.management_url).get("cluster-name") == {"name": "kept"}


def test_a_temporary_broker_leaves_nothing_behind_and_another_broker_alone(
    broker_url: str,
) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as to_another:
        with PrivateBroker.temporary() as broker:
            assert traces(broker.directory) != []
            assert broker.url != broker_url
        assert traces(broker.directory) == []
        assert not broker.directory.exists()
        assert to_another.channel().is_open


def test_a_node_that_cannot_start_says_why(start_private_broker: PrivateBrokerFactory) -> None:
    with pytest.raises(BrokerProcessError, match="stopped during startup") as refused:
        start_private_broker(extra_config={"no.such.setting": "1"})
    assert "unknown variable: no.such.setting" in str(refused.value)


def test_a_process_that_reuses_the_pid_is_not_signalled(
    idle_broker: PrivateBroker, stranger: subprocess.Popen[bytes]
) -> None:
    (node,) = idle_broker.nodes
    node.directory.mkdir()
    save_process(node.directory, ProcessRecord(stranger.pid, "an earlier start"))
    assert node.pid is None
    assert not idle_broker.stop()
    node.kill()
    assert stranger.poll() is None


def test_the_error_names_a_port_taken_by_another_process(idle_broker: PrivateBroker) -> None:
    port = idle_broker.nodes[0].layout.amqp_port
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(BrokerProcessError, match=f"Port {port} .* is taken"),
    ):
        idle_broker.start()
    assert traces(idle_broker.directory) == []


def test_a_failed_first_start_leaves_the_folder_as_new(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = PrivateBroker(tmp_path, port=port)
        with pytest.raises(BrokerProcessError, match=f"Port {port} .* is taken"):
            broker.start()
    assert broker.nodes == ()
    assert not broker.was_started


def test_after_a_late_failure_of_the_first_start_other_options_apply(tmp_path: Path) -> None:
    with pytest.raises(BrokerProcessError, match="stopped during startup"):
        PrivateBroker(tmp_path, extra_config={"no.such.setting": "1"}).start()
    (port,) = pick_free(1)
    broker = PrivateBroker(tmp_path, port=port)
    try:
        assert broker.start()
        assert broker.url == f"amqp://guest:guest@127.0.0.1:{port}/"
    finally:
        broker.discard()


def test_without_rabbitmq_and_docker_the_error_says_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rabbitdelay.private_broker.installation.installation._SERVER_PATTERNS", ())
    monkeypatch.delenv("RABBITDELAY_RABBITMQ_ROOT", raising=False)
    monkeypatch.delenv("RABBITDELAY_RABBITMQ_SERVER", raising=False)
    monkeypatch.setitem(os.environ, "PATH", "/nowhere")
    with pytest.raises(BrokerProcessError) as refused:
        PrivateBroker(tmp_path / "broker").start()
    assert "apt-get install rabbitmq-server" in str(refused.value)
    assert "\n" not in str(refused.value)
