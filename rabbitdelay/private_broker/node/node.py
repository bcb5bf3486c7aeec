"""One node of a private broker, independent of how it is run."""

import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.machine.ports import LOOPBACK, accepts_connections, is_free
from rabbitdelay.private_broker.node.readiness import management_answers, speaks_amqp
from rabbitdelay.private_broker.state import Layout, NodeLayout, load_process

START_SECONDS = 60.0
STOP_SECONDS = 20.0

_POLL_SECONDS = 0.05

# RabbitMQ logs the cause, then this line, and then pages of Erlang reports about the failure.
_STARTUP_ERROR = "Error during startup"
_STARTUP_ERROR_LINES = 6  # the Erlang term may span several lines
_SHOWN_LINES = 15
_LOG_PREFIX = re.compile(r"^\S+ \S+ \[\w+\] <[\d.]+> ?")


@dataclass(frozen=True, slots=True)
class Node(ABC):
    """A node with its own folder and ports. All methods are idempotent.

    The object is a reference to the node, not a handle. It queries the system for the node's state
    each time, so any number of these objects, in any process, may refer to the same node.
    """

    broker_directory: Path
    broker: Layout
    layout: NodeLayout

    @property
    def name(self) -> str:
        """Node name with its host, as shown in the management UI."""
        return self.layout.name

    @property
    def directory(self) -> Path:
        """Folder with the node's configuration, data and logs."""
        return self.broker_directory / self.name.partition("@")[0]

    @property
    def url(self) -> str:
        """AMQP URL with the user guest, which may log in over loopback."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.layout.amqp_port}/"

    @property
    def management_url(self) -> str:
        """Address of the management UI."""
        return f"http://{LOOPBACK}:{self.layout.management_port}/"

    @property
    def is_running(self) -> bool:
        """Whether the node runs and accepts connections. Fast, because it spawns no process."""
        return self.pid is not None and accepts_connections(self.layout.amqp_port)

    @property
    def was_started(self) -> bool:
        """Whether the node was started and not stopped since, even if it ended unexpectedly."""
        return load_process(self.directory) is not None

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Pid of the node's process while it runs, ready or not."""

    @abstractmethod
    def launch(self) -> None:
        """Start the node with its existing data, and return without waiting."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the node cleanly, or by force if it is still running after 20 s."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the node with SIGKILL and wait until all of its processes have ended."""

    @abstractmethod
    def read_log(self) -> str:
        """Return the console output since the node's last start."""

    @abstractmethod
    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on the running node and return its output.

        Raises:
            BrokerProcessError: rabbitmqctl failed; the error includes its output.
        """

    def discard(self) -> None:
        """Kill the node and remove everything it keeps outside the broker's folder."""
        self.kill()

    def start(self) -> None:
        """Start the node with its existing data and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the node serves AMQP and its management UI."""
        deadline = time.monotonic() + START_SECONDS
        while not self._serves():
            if self.pid is None:
                raise BrokerProcessError(self._failure("stopped during startup"))
            if time.monotonic() > deadline:
                raise BrokerProcessError(self._failure(f"is not ready after {START_SECONDS:.0f} s"))
            time.sleep(_POLL_SECONDS)

    def _refuse_taken_ports(self, *ports: int) -> None:
        for port in ports:
            if not is_free(port):
                raise BrokerProcessError(
                    f"Port {port} of {self.name} is taken by another process: end that process, "
                    "or use another folder for this broker."
                )

    def _serves(self) -> bool:
        return speaks_amqp(self.layout.amqp_port) and management_answers(
            self.layout.management_port
        )

    def _failure(self, event: str) -> str:
        shown = "\n".join(f"  {line}" for line in failure_lines(self.read_log()))
        return f"{self.name} {event}. The last lines of its log in {self.directory}:\n{shown}"


def failure_lines(log: str) -> list[str]:
    """Return the last lines of a node's log that explain why it does not run."""
    lines = [_LOG_PREFIX.sub("", line) for line in log.splitlines()]
    lines = [line for line in lines if line.strip()]
    index = next((index for index, line in enumerate(lines) if _STARTUP_ERROR in line), len(lines))
    return lines[: index + _STARTUP_ERROR_LINES][-_SHOWN_LINES:]
