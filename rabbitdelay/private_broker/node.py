"""One node of a private broker, whatever it runs on."""

import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.ports import LOOPBACK, accepts_connections, is_free
from rabbitdelay.private_broker.readiness import management_answers, speaks_amqp
from rabbitdelay.private_broker.state import Layout, NodeLayout, load_process

START_SECONDS = 60.0
STOP_SECONDS = 20.0

_POLL_SECONDS = 0.05

# RabbitMQ says what is wrong, then this; after it come pages of Erlang's own reports about that.
_VERDICT = "Error during startup"
_VERDICT_LINES = 6  # an Erlang term may go on for some lines
_SHOWN_LINES = 15
_LOG_PREFIX = re.compile(r"^\S+ \S+ \[\w+\] <[\d.]+> ?")


@dataclass(frozen=True, slots=True)
class Node(ABC):
    """A node with its own folder and ports. Every method does nothing when there is nothing to do.

    It is a name for the node and no handle: what runs is asked of the system each time, so any
    number of these objects, in any process, may stand for the same node.
    """

    broker_directory: Path
    broker: Layout
    layout: NodeLayout

    @property
    def name(self) -> str:
        """The name with its host, as the management UI shows it."""
        return self.layout.name

    @property
    def directory(self) -> Path:
        """The folder with the node's configuration, data and logs."""
        return self.broker_directory / self.name.partition("@")[0]

    @property
    def url(self) -> str:
        """The AMQP URL; guest may log in over loopback."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.layout.amqp_port}/"

    @property
    def management_url(self) -> str:
        """The address of the management UI."""
        return f"http://{LOOPBACK}:{self.layout.management_port}/"

    @property
    def is_running(self) -> bool:
        """Whether it runs and listens for clients. Quick: it starts no process to find out."""
        return self.pid is not None and accepts_connections(self.layout.amqp_port)

    @property
    def was_started(self) -> bool:
        """Whether it was started and not stopped since, though it may have ended by itself."""
        return load_process(self.directory) is not None

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The pid of its process while that runs, ready or not."""

    @abstractmethod
    def launch(self) -> None:
        """Start its process, with the data it had, and do not wait."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it in good order, and by force if it has not ended after 20 s."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it with SIGKILL and wait until nothing of it runs."""

    @abstractmethod
    def read_log(self) -> str:
        """What it has printed since its last start."""

    @abstractmethod
    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on the running node, and return what it printed.

        Raises:
            BrokerProcessError: rabbitmqctl failed; the error has its words.
        """

    def discard(self) -> None:
        """Kill it and remove what it keeps outside of the broker's folder."""
        self.kill()

    def start(self) -> None:
        """Start it, with the data it had, and wait until it serves."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until it serves AMQP and its management UI."""
        deadline = time.monotonic() + START_SECONDS
        while not self._serves():
            if self.pid is None:
                raise BrokerProcessError(self._failure("stopped while it was starting"))
            if time.monotonic() > deadline:
                raise BrokerProcessError(self._failure(f"is not ready after {START_SECONDS:.0f} s"))
            time.sleep(_POLL_SECONDS)

    def _refuse_taken_ports(self, *ports: int) -> None:
        for port in ports:
            if not is_free(port):
                raise BrokerProcessError(
                    f"Port {port} of {self.name} is taken by another process: end that one, or "
                    "use another folder for this broker."
                )

    def _serves(self) -> bool:
        return speaks_amqp(self.layout.amqp_port) and management_answers(
            self.layout.management_port
        )

    def _failure(self, what: str) -> str:
        shown = "\n".join(f"  {line}" for line in telling_lines(self.read_log()))
        return f"{self.name} {what}. The last lines of its log in {self.directory}:\n{shown}"


def telling_lines(log: str) -> list[str]:
    """The last lines of a node's log that say why it does not run."""
    lines = [_LOG_PREFIX.sub("", line) for line in log.splitlines()]
    lines = [line for line in lines if line.strip()]
    verdict = next((place for place, line in enumerate(lines) if _VERDICT in line), len(lines))
    return lines[: verdict + _VERDICT_LINES][-_SHOWN_LINES:]
