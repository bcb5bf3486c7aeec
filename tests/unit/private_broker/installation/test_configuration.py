from pathlib import Path

from rabbitdelay.private_broker.installation.configuration import (
    NodeFiles,
    configuration_text,
    environment_variables,
    write_files,
)
from rabbitdelay.private_broker.node.node import failure_lines
from rabbitdelay.private_broker.state import Layout, NodeLayout

FIRST = NodeLayout("rabbitdelay1@localhost", 20001, 20002, 20003)
SECOND = NodeLayout("rabbitdelay2@localhost", 20011, 20012, 20013)
ALONE = Layout(nodes=(FIRST,), epmd_port=20000, cookie="KEY")
FILES = NodeFiles(Path("/folder/rabbitdelay1"))


def test_a_node_listens_on_loopback_only() -> None:
    lines = configuration_text(FIRST, ALONE).splitlines()
    assert "listeners.tcp.default = 127.0.0.1:20001" in lines
    assert "management.tcp.ip = 127.0.0.1" in lines
    variables = environment_variables(FILES, FIRST, ALONE, {})
    assert variables["ERL_EPMD_ADDRESS"] == "127.0.0.1"
    assert "{127,0,0,1}" in variables["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]


def test_a_node_retries_rejected_dead_letters_within_seconds(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path)
    write_files(files, FIRST, ALONE)
    setting = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 5000}]}].\n"
    assert files.advanced_configuration.read_text() == setting


def test_a_single_node_does_not_look_for_peers() -> None:
    assert "cluster_formation" not in configuration_text(FIRST, ALONE)


def test_every_node_of_a_cluster_is_configured_with_all_nodes() -> None:
    both = Layout(nodes=(FIRST, SECOND), epmd_port=20000, cookie="KEY")
    text = configuration_text(SECOND, both)
    assert "cluster_formation.classic_config.nodes.1 = rabbitdelay1@localhost\n" in text
    assert "cluster_formation.classic_config.nodes.2 = rabbitdelay2@localhost\n" in text


def test_extra_config_overrides_our_settings() -> None:
    extra = {"disk_free_limit.absolute": "1GB", "channel_max": "10"}
    layout = Layout(nodes=(FIRST,), epmd_port=20000, cookie="KEY", extra_config=extra)
    lines = configuration_text(FIRST, layout).splitlines()
    assert "channel_max = 10" in lines
    assert [line for line in lines if "disk_free" in line] == ["disk_free_limit.absolute = 1GB"]


def test_the_users_rabbitmq_variables_are_not_inherited() -> None:
    users = {"RABBITMQ_NODE_PORT": "5672", "ERL_FLAGS": "-x", "NOTIFY_SOCKET": "/x", "TZ": "UTC"}
    variables = environment_variables(FILES, FIRST, ALONE, users)
    assert users.keys() & variables.keys() == {"TZ"}


def test_the_cookie_is_not_in_the_repr() -> None:
    assert "KEY" not in repr(ALONE)


def test_a_failed_start_shows_its_whole_cause_without_the_erlang_reports() -> None:
    prefix = "2026-11-16 06:17:09.106540+00:00 [error] <0.132.0> "
    reason = ["There is no setting with that name.", "Error during startup: {error,", "  failed}"]
    reports = [f"    supervisor report {number}" for number in range(100)]
    shown = failure_lines("\n".join(prefix + line for line in [*reason, "", *reports]))
    assert shown[:3] == reason
    assert len(shown) < 10


def test_a_start_that_hangs_shows_the_last_log_lines() -> None:
    assert failure_lines("".join(f"line {number}\n" for number in range(100)))[-1] == "line 99"
