import os
from dataclasses import replace
from pathlib import Path

import pytest

from rabbitdelay.errors import BrokerProcessError, InvalidConfiguration
from rabbitdelay.private_broker.layout import BrokerOptions, existing_layout, new_layout
from rabbitdelay.private_broker.node import docker
from rabbitdelay.private_broker.node.docker import (
    IMAGE,
    engine_answers,
    run_command,
    write_readable,
)
from rabbitdelay.private_broker.state import NodeLayout

NODE = NodeLayout("rabbitdelay1@localhost", 20001, 20002, 20003)


def test_a_container_listens_on_loopback_only() -> None:
    command = run_command("box", NODE, Path("/folder/rabbitmq.conf"))
    published = [command[place + 1] for place, word in enumerate(command) if word == "--publish"]
    assert published == ["127.0.0.1:20001:5672", "127.0.0.1:20002:15672"]


def test_a_container_runs_the_image_with_our_configuration() -> None:
    command = run_command("box", NODE, Path("/folder/rabbitmq.conf"))
    assert command[:5] == ["docker", "run", "--detach", "--name", "box"]
    assert "/folder/rabbitmq.conf:/etc/rabbitmq/conf.d/90-rabbitdelay.conf:ro" in command
    assert command[-1] == IMAGE


def test_a_container_retries_rejected_dead_letters_within_seconds() -> None:
    command = run_command("box", NODE, Path("/folder/rabbitmq.conf"))
    setting = "-rabbit dead_letter_worker_publisher_confirm_timeout 5000"
    assert f"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={setting}" in command


def test_the_configuration_is_readable_in_the_container_despite_a_strict_umask(
    tmp_path: Path,
) -> None:
    before = os.umask(0o077)
    try:
        write_readable(tmp_path / "rabbitmq.conf", "loopback_users = none\n")
    finally:
        os.umask(before)
    assert (tmp_path / "rabbitmq.conf").stat().st_mode & 0o777 == 0o644


def test_the_docker_option_does_not_fall_back_to_the_installed_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RABBITDELAY_RABBITMQ_ROOT", raising=False)
    monkeypatch.setattr(docker, "engine_answers", lambda: True)
    layout = new_layout(tmp_path, BrokerOptions(docker=True))
    assert layout.container is not None
    kept = replace(layout, container=None)
    with pytest.raises(InvalidConfiguration, match="was created without Docker"):
        existing_layout(tmp_path, kept, BrokerOptions(docker=True))
    monkeypatch.setattr(docker, "engine_answers", lambda: False)
    with pytest.raises(BrokerProcessError, match="No Docker engine is running"):
        new_layout(tmp_path, BrokerOptions(docker=True))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("Bind for 127.0.0.1:20001 failed: port is already allocated.", "Port 20001 is taken"),
        ("listen tcp4 127.0.0.1:20002: bind: address already in use", "Port 20002 is taken"),
        ("ports are not available", "One of the broker's ports is taken"),
    ],
)
def test_a_taken_port_has_one_error_message_for_all_engines(
    output: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text(f"#!/bin/sh\necho '{output}'\nexit 125\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(docker.PortTaken, match=f"^{message}.*--port"):
        docker._docker("run")


def test_docker_is_unavailable_without_the_docker_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert not engine_answers()
