"""A node in a Docker container, for machines that have Docker but no rabbitmq-server.

Stopping the node keeps the container, and with it the data and the ports.
"""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.installation.configuration import dead_letter_retry_arguments
from rabbitdelay.private_broker.machine.ports import LOOPBACK, accepts_connections
from rabbitdelay.private_broker.machine.processes import ProcessRecord
from rabbitdelay.private_broker.node.node import STOP_SECONDS, Node
from rabbitdelay.private_broker.state import NodeLayout, forget_process, save_process

IMAGE = "rabbitmq:4-management"

_CONFIGURATION_IN_CONTAINER = "/etc/rabbitmq/conf.d/90-rabbitdelay.conf"
_ENGINE_SECONDS = 5.0
_COMMAND_SECONDS = 600.0  # the first start downloads the image


_PORT_TAKEN_PHRASES = (
    "port is already allocated",
    "address already in use",
    "ports are not available",
)
_PORT = re.compile(r"(?:\d+\.){3}\d+:(\d+)")


class PortTaken(BrokerProcessError):
    """Raised when the Docker engine reports that a port of the broker is taken."""


def engine_answers() -> bool:
    """Whether a Docker engine is available."""
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_ENGINE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def has_image() -> bool:
    """Whether the engine has the broker's image or can pull it now."""
    is_present = _execute(["docker", "image", "inspect", IMAGE]).returncode == 0
    return is_present or _execute(["docker", "pull", "--quiet", IMAGE]).returncode == 0


def run_command(container: str, layout: NodeLayout, configuration: Path) -> list[str]:
    """Return the command that creates and starts the container."""
    return [
        *("docker", "run", "--detach", "--name", container),
        *("--hostname", container),  # part of the node's name, and so of the path of its data
        *("--publish", f"{LOOPBACK}:{layout.amqp_port}:5672"),
        *("--publish", f"{LOOPBACK}:{layout.management_port}:15672"),
        *("--volume", f"{configuration}:{_CONFIGURATION_IN_CONTAINER}:ro"),
        *("--env", f"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={dead_letter_retry_arguments()}"),
        IMAGE,
    ]


@dataclass(frozen=True, slots=True)
class DockerNode(Node):
    """A node in a container; a broker in Docker has exactly one."""

    @property
    def pid(self) -> int | None:
        """Pid of the container's first process, as numbered on the engine's host."""
        state = self._inspect()
        return state["Pid"] if state is not None and state["Running"] else None

    @property
    def is_running(self) -> bool:
        """Whether the node accepts connections. Fast, because the engine is not queried."""
        return accepts_connections(self.layout.amqp_port)

    def launch(self) -> None:
        """Start the container with its existing data, and return without waiting."""
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
            # The engine has created the container but would never start it.
            _execute(["docker", "rm", "--force", "--volumes", self._container])
            raise

    def stop(self) -> None:
        """Stop the node cleanly, or by force if it is still running after 20 s."""
        if self.pid is not None:
            _docker("stop", "--time", f"{STOP_SECONDS:.0f}", self._container)
        forget_process(self.directory)

    def kill(self) -> None:
        """Kill the node with SIGKILL and wait until it has ended."""
        if self.pid is not None:
            _docker("kill", self._container)
            _docker("wait", self._container)
        forget_process(self.directory)

    def discard(self) -> None:
        """Remove the container and its data."""
        if self._inspect() is not None:
            _docker("rm", "--force", "--volumes", self._container)
        forget_process(self.directory)

    def read_log(self) -> str:
        """Return the console output since the node's last start."""
        return _docker("logs", self._container)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on the running node and return its output."""
        return _docker("exec", self._container, "rabbitmqctl", *arguments)

    @property
    def _container(self) -> str:
        return self.broker.container or ""

    def _configuration_text(self) -> str:
        # Inside the container, our connections arrive from the engine's bridge, not from loopback.
        settings = {"loopback_users": "none", **self.broker.extra_config}
        return "".join(f"{name} = {value}\n" for name, value in settings.items())

    def _inspect(self) -> dict[str, int] | None:
        answer = _execute(["docker", "inspect", "--format", "{{json .State}}", self._container])
        state: dict[str, int] = json.loads(answer.stdout) if answer.returncode == 0 else {}
        return state or None


def write_readable(path: Path, text: str) -> None:
    """Write a file that the container's user can read, regardless of the umask."""
    path.write_text(text)
    path.chmod(0o644)


def _docker(*arguments: str) -> str:
    return _run(["docker", *arguments])


def _run(command: Sequence[str]) -> str:
    answer = _execute(command)
    if answer.returncode != 0:
        raise _failure(command, answer.stdout.strip())
    return answer.stdout


def _failure(command: Sequence[str], output: str) -> BrokerProcessError:
    """Return the error for a failed command; engines report a taken port in several ways."""
    if any(phrase in output for phrase in _PORT_TAKEN_PHRASES):
        port = _PORT.search(output)
        which = f"Port {port[1]}" if port else "One of the broker's ports"
        return PortTaken(
            f"{which} is taken by another container or program: stop that one, or choose "
            "another port with --port."
        )
    return BrokerProcessError(f"`{' '.join(command[:2])}` failed: {output}")


def _execute(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
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
        raise BrokerProcessError(
            f"Docker does not respond ({error}): check that it is installed and running."
        ) from error
