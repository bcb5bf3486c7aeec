"""A node in a Docker container, for machines that have Docker and no rabbitmq-server.

The container is kept when the node stops, and with it its data and its ports.
"""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.configuration import dead_letter_retry_arguments
from rabbitdelay.private_broker.node import STOP_SECONDS, Node
from rabbitdelay.private_broker.ports import LOOPBACK, accepts_connections
from rabbitdelay.private_broker.processes import ProcessRecord
from rabbitdelay.private_broker.state import NodeLayout, forget_process, save_process

IMAGE = "rabbitmq:4-management"

_CONFIGURATION_IN_CONTAINER = "/etc/rabbitmq/conf.d/90-rabbitdelay.conf"
_ENGINE_SECONDS = 5.0
_COMMAND_SECONDS = 600.0  # the first start downloads the image


_TAKEN = ("port is already allocated", "address already in use", "ports are not available")
_PORT = re.compile(r"(?:\d+\.){3}\d+:(\d+)")


class PortTaken(BrokerProcessError):
    """A port of the broker is taken, as the engine says."""


def engine_answers() -> bool:
    """Whether there is a Docker engine that can be used."""
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_ENGINE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def has_image() -> bool:
    """Whether the engine has the broker's image, or can pull it now."""
    is_there = _answer(["docker", "image", "inspect", IMAGE]).returncode == 0
    return is_there or _answer(["docker", "pull", "--quiet", IMAGE]).returncode == 0


def run_command(container: str, layout: NodeLayout, configuration: Path) -> list[str]:
    """The command that makes the container and starts it."""
    return [
        *("docker", "run", "--detach", "--name", container),
        *("--hostname", container),  # a part of the node's name, and so of its data's place
        *("--publish", f"{LOOPBACK}:{layout.amqp_port}:5672"),
        *("--publish", f"{LOOPBACK}:{layout.management_port}:15672"),
        *("--volume", f"{configuration}:{_CONFIGURATION_IN_CONTAINER}:ro"),
        *("--env", f"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={dead_letter_retry_arguments()}"),
        IMAGE,
    ]


@dataclass(frozen=True, slots=True)
class DockerNode(Node):
    """A node as a container; there is one per broker."""

    @property
    def pid(self) -> int | None:
        """The pid of the container's first process, as the engine's machine numbers it."""
        state = self._inspect()
        return state["Pid"] if state is not None and state["Running"] else None

    @property
    def is_running(self) -> bool:
        """Whether it listens for clients. Quick: it does not ask the engine."""
        return accepts_connections(self.layout.amqp_port)

    def launch(self) -> None:
        """Start its container, with the data it had, and do not wait."""
        if self.pid is not None:
            return
        self._refuse_taken_ports(self.layout.amqp_port, self.layout.management_port)
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._inspect() is not None:
            _docker("start", self._container)
        else:
            self._make_container()
        save_process(self.directory, ProcessRecord(self.pid or 0, self._container))

    def _make_container(self) -> None:
        configuration = self.directory / "rabbitmq.conf"
        write_readable(configuration, self._configuration_text())
        try:
            _run(run_command(self._container, self.layout, configuration))
        except PortTaken:
            # The engine has made it, and would never start it.
            _answer(["docker", "rm", "--force", "--volumes", self._container])
            raise

    def stop(self) -> None:
        """Stop it in good order, and by force if it has not ended after 20 s."""
        if self.pid is not None:
            _docker("stop", "--time", f"{STOP_SECONDS:.0f}", self._container)
        forget_process(self.directory)

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until nothing of it runs."""
        if self.pid is not None:
            _docker("kill", self._container)
            _docker("wait", self._container)
        forget_process(self.directory)

    def discard(self) -> None:
        """Remove the container with its data."""
        if self._inspect() is not None:
            _docker("rm", "--force", "--volumes", self._container)
        forget_process(self.directory)

    def read_log(self) -> str:
        """What it has printed since its last start."""
        return _docker("logs", self._container)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on the running node, and return what it printed."""
        return _docker("exec", self._container, "rabbitmqctl", *arguments)

    @property
    def _container(self) -> str:
        return self.broker.container or ""

    def _configuration_text(self) -> str:
        # From inside the container our connections come from the engine's bridge, not loopback.
        settings = {"loopback_users": "none", **self.broker.extra_config}
        return "".join(f"{name} = {value}\n" for name, value in settings.items())

    def _inspect(self) -> dict[str, int] | None:
        answer = _answer(["docker", "inspect", "--format", "{{json .State}}", self._container])
        state: dict[str, int] = json.loads(answer.stdout) if answer.returncode == 0 else {}
        return state or None


def write_readable(path: Path, text: str) -> None:
    """Write a file that the container's user can read, whatever the umask is here."""
    path.write_text(text)
    path.chmod(0o644)


def _docker(*arguments: str) -> str:
    return _run(["docker", *arguments])


def _run(command: Sequence[str]) -> str:
    answer = _answer(command)
    if answer.returncode != 0:
        raise _failure(command, answer.stdout.strip())
    return answer.stdout


def _failure(command: Sequence[str], said: str) -> BrokerProcessError:
    """Return our error for a command that failed; the engine's words for a taken port are many."""
    if any(words in said for words in _TAKEN):
        port = _PORT.search(said)
        which = f"Port {port[1]}" if port else "One of the broker's ports"
        return PortTaken(
            f"{which} is taken, by another container or program: stop that one, or choose "
            "another with --port."
        )
    return BrokerProcessError(f"`{' '.join(command[:2])}` failed: {said}")


def _answer(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_COMMAND_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerProcessError(f"Docker does not answer: {error}") from error
