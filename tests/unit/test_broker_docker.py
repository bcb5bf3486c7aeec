from pathlib import Path

import pytest

from rabbitdelay.broker.docker import IMAGE, engine_answers, run_command
from rabbitdelay.broker.state import NodeLayout

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


def test_without_the_docker_command_no_engine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert not engine_answers()
