import socket
from pathlib import Path

import pytest

from rabbitdelay.errors import BrokerProcessError, InvalidConfiguration
from rabbitdelay.private_broker import default_directory
from rabbitdelay.private_broker.layout import BrokerOptions, existing_layout, new_layout
from rabbitdelay.private_broker.machine.ports import is_free, pick_free
from rabbitdelay.private_broker.state import Layout, NodeLayout, load_layout, save_layout

FOLDER = Path("/folder")
NODE = NodeLayout("rabbitdelay1@localhost", 20001, 20002, 20003)
LAYOUT = Layout(nodes=(NODE,), epmd_port=20000, cookie="KEY", extra_config={"channel_max": "10"})


@pytest.fixture(autouse=True)
def _no_rabbitmq_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RABBITDELAY_RABBITMQ_ROOT", raising=False)
    monkeypatch.delenv("RABBITDELAY_RABBITMQ_SERVER", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a root with the files by which an installation is found."""
    for program in ("usr/lib/rabbitmq/bin/rabbitmq-server", "usr/bin/epmd"):
        path = tmp_path / program
        path.parent.mkdir(parents=True)
        path.touch(mode=0o755)
    return tmp_path


def test_a_saved_layout_loads_unchanged(tmp_path: Path) -> None:
    save_layout(tmp_path, LAYOUT)
    assert load_layout(tmp_path) == LAYOUT
    assert (tmp_path / "broker.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_of_another_version_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text('{"version": 99}')
    with pytest.raises(BrokerProcessError, match="another version of rabbitdelay"):
        load_layout(tmp_path)


def test_a_corrupt_layout_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text("{")
    with pytest.raises(BrokerProcessError, match="cannot be read"):
        load_layout(tmp_path)


def test_a_new_cluster_has_the_requested_nodes_and_distinct_ports(root: Path) -> None:
    layout = new_layout(FOLDER, BrokerOptions(nodes=3, port=25672, root=root))
    ports = [layout.epmd_port]
    for node in layout.nodes:
        ports += [node.amqp_port, node.management_port, node.distribution_port]
    assert len(layout.nodes) == 3
    assert len(set(ports)) == 10
    assert layout.nodes[0].amqp_port == 25672
    assert layout.root == str(root)
    assert layout.container is None


def test_default_options_keep_the_layout() -> None:
    assert existing_layout(FOLDER, LAYOUT, BrokerOptions()) == LAYOUT
    assert existing_layout(FOLDER, LAYOUT, BrokerOptions(nodes=1, port=20001)) == LAYOUT


@pytest.mark.parametrize(
    "options", [BrokerOptions(nodes=3), BrokerOptions(port=5672), BrokerOptions(root=Path("/r"))]
)
def test_an_option_that_contradicts_the_layout_is_rejected(options: BrokerOptions) -> None:
    with pytest.raises(InvalidConfiguration, match="choose another folder"):
        existing_layout(FOLDER, LAYOUT, options)


def test_new_extra_config_replaces_the_old() -> None:
    layout = existing_layout(FOLDER, LAYOUT, BrokerOptions(extra_config={"heartbeat": "5"}))
    assert layout.extra_config == {"heartbeat": "5"}


def test_picked_ports_are_free_and_below_the_ephemeral_ports() -> None:
    ports = pick_free(5)
    assert all(is_free(port) and port < 32768 for port in ports)


def test_a_port_with_a_listening_server_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RABBITDELAY_BROKER_DIR": "/b", "XDG_STATE_HOME": "/s"}, Path("/b")),
        ({"XDG_STATE_HOME": "/s"}, Path("/s/rabbitdelay/broker")),
        ({}, Path.home() / ".local/state/rabbitdelay/broker"),
    ],
)
def test_the_default_folder_depends_on_the_environment(
    environment: dict[str, str], expected: Path
) -> None:
    assert default_directory(environment) == expected
