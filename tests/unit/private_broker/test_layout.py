import socket
from pathlib import Path

import pytest

from rabbitdelay.errors import BrokerProcessError, InvalidConfiguration
from rabbitdelay.private_broker import default_directory
from rabbitdelay.private_broker.layout import Wishes, kept_layout, new_layout
from rabbitdelay.private_broker.ports import is_free, pick_free
from rabbitdelay.private_broker.state import Layout, NodeLayout, load_layout, save_layout

FOLDER = Path("/folder")
NODE = NodeLayout("rabbitdelay1@localhost", 20001, 20002, 20003)
LAYOUT = Layout(nodes=(NODE,), epmd_port=20000, cookie="KEY", extra_config={"channel_max": "10"})


@pytest.fixture(autouse=True)
def _no_root_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RABBITDELAY_RABBITMQ_ROOT", raising=False)


def test_a_layout_is_read_as_it_was_written(tmp_path: Path) -> None:
    save_layout(tmp_path, LAYOUT)
    assert load_layout(tmp_path) == LAYOUT
    assert (tmp_path / "broker.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text('{"version": 99}')
    with pytest.raises(BrokerProcessError, match="another version of rabbitdelay"):
        load_layout(tmp_path)


def test_a_broken_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text("{")
    with pytest.raises(BrokerProcessError, match="cannot be read"):
        load_layout(tmp_path)


def test_a_new_cluster_has_as_many_nodes_as_wished_and_no_port_twice() -> None:
    layout = new_layout(FOLDER, Wishes(nodes=3, port=25672))
    ports = [layout.epmd_port]
    for node in layout.nodes:
        ports += [node.amqp_port, node.management_port, node.distribution_port]
    assert len(layout.nodes) == 3
    assert len(set(ports)) == 10
    assert layout.nodes[0].amqp_port == 25672


def test_no_wish_keeps_the_layout() -> None:
    assert kept_layout(FOLDER, LAYOUT, Wishes()) == LAYOUT
    assert kept_layout(FOLDER, LAYOUT, Wishes(nodes=1, port=20001)) == LAYOUT


@pytest.mark.parametrize("wishes", [Wishes(nodes=3), Wishes(port=5672), Wishes(root=Path("/r"))])
def test_a_wish_against_the_layout_is_refused(wishes: Wishes) -> None:
    with pytest.raises(InvalidConfiguration, match="choose another folder"):
        kept_layout(FOLDER, LAYOUT, wishes)


def test_new_extra_lines_replace_the_old() -> None:
    layout = kept_layout(FOLDER, LAYOUT, Wishes(extra_config={"heartbeat": "5"}))
    assert layout.extra_config == {"heartbeat": "5"}


def test_picked_ports_are_free_and_below_those_of_outgoing_connections() -> None:
    ports = pick_free(5)
    assert all(is_free(port) and port < 32768 for port in ports)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
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
def test_the_default_folder(environment: dict[str, str], expected: Path) -> None:
    assert default_directory(environment) == expected
