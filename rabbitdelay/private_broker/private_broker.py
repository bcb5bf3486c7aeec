"""A private RabbitMQ on this machine: one node, or a cluster of several."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rabbitdelay.errors import BrokerProcessError, InvalidConfiguration
from rabbitdelay.private_broker.installation.configuration import NodeFiles
from rabbitdelay.private_broker.layout import BrokerOptions, existing_layout, new_layout
from rabbitdelay.private_broker.machine import processes
from rabbitdelay.private_broker.node.docker import DockerNode
from rabbitdelay.private_broker.node.epmd import Epmd
from rabbitdelay.private_broker.node.node import START_SECONDS, Node
from rabbitdelay.private_broker.node.readiness import running_nodes
from rabbitdelay.private_broker.node.server_node import ServerNode
from rabbitdelay.private_broker.state import (
    default_directory,
    forget_layout,
    load_layout,
    locked,
    save_layout,
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """State of one node."""

    name: str
    running: bool
    pid: int | None
    url: str
    management_url: str


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """State of a broker and its nodes."""

    directory: Path
    running: bool  # whether at least one node runs
    nodes: tuple[NodeStatus, ...]  # empty before the first start


class PrivateBroker:
    """A private RabbitMQ that keeps its data, ports and logs in one folder across restarts.

    Args:
        directory: Folder of the broker, created by the first start.
        nodes: Number of nodes. Default: as many as the folder has, or one.
        port: AMQP port of the first node. Default: its previous port, or a free one.
        root: Root folder of a complete system that contains RabbitMQ, which then runs in a chroot.
        extra_config: Additional settings for rabbitmq.conf, kept in the folder. In a chroot, files
            that they refer to must be in `directory`.
        docker: Whether to run in Docker even if rabbitmq-server is installed.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int | None = None,
        port: int | None = None,
        root: Path | None = None,
        extra_config: Mapping[str, str] | None = None,
        docker: bool = False,
    ) -> None:
        if nodes is not None and nodes < 1:
            raise InvalidConfiguration(f"A broker needs at least one node, not {nodes}.")
        self.directory = Path(directory).absolute()
        self._options = BrokerOptions(nodes, port, root, extra_config, docker)

    @classmethod
    @contextmanager
    def temporary(
        cls,
        *,
        nodes: int = 1,
        root: Path | None = None,
        extra_config: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Self]:
        """Start a broker in a temporary folder, and remove all of it on exit."""
        directory = Path(tempfile.mkdtemp(prefix="rabbitdelay-broker-"))
        broker = cls(directory, nodes=nodes, root=root, extra_config=extra_config)
        try:
            broker.start(progress)
            yield broker
        finally:
            broker.discard()

    @property
    def url(self) -> str:
        """AMQP URL of the first running node, or of the first node when none runs."""
        return self._main_node.url

    @property
    def management_url(self) -> str:
        """Address of the management UI of the same node as `url`."""
        return self._main_node.management_url

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes of the broker; empty before the first start."""
        broker = load_layout(self.directory)
        if broker is None:
            return ()
        kind = ServerNode if broker.container is None else DockerNode
        return tuple(kind(self.directory, broker, layout) for layout in broker.nodes)

    def start(self, progress: Progress | None = None) -> bool:
        """Start every stopped node, and wait until all are ready and form one cluster.

        Return False if all nodes were already running. If the start fails or is interrupted, the
        nodes that this call launched are killed, and a new folder is reset except for its logs.
        """
        with locked(self.directory):
            is_first = load_layout(self.directory) is None
            self._save_layout()
            idle = [node for node in self.nodes if node.pid is None]
            try:
                self._start_nodes(idle, progress or _ignore_progress)
            except BaseException:
                self._end(lambda node: node.kill(), idle)
                if is_first:
                    self._forget()
                raise
        return bool(idle)

    def stop(self, progress: Progress | None = None) -> bool:
        """Stop every node cleanly; return False if none was running."""
        for node in self.nodes:
            if node.pid is not None:
                (progress or _ignore_progress)(f"stopping {node.name}")
        return self._end_all(lambda node: node.stop())

    def kill(self) -> bool:
        """Kill every node with SIGKILL; return False if none was running."""
        return self._end_all(lambda node: node.kill())

    def discard(self) -> None:
        """Kill every node and remove the folder with all its data."""
        self._end_all(lambda node: node.discard())
        shutil.rmtree(self.directory, ignore_errors=True)

    def status(self) -> BrokerStatus:
        """Return the current state of the broker and its nodes."""
        nodes = tuple(
            NodeStatus(node.name, node.is_running, node.pid, node.url, node.management_url)
            for node in self.nodes
        )
        return BrokerStatus(self.directory, any(node.running for node in nodes), nodes)

    @property
    def was_started(self) -> bool:
        """Whether any node was started and not stopped since, running or not."""
        return any(node.was_started for node in self.nodes)

    @property
    def _main_node(self) -> Node:
        nodes = self.nodes
        if not nodes:
            raise BrokerProcessError(
                f"No broker has been started in {self.directory}: start it, or check the folder."
            )
        return next((node for node in nodes if node.is_running), nodes[0])

    def _save_layout(self) -> None:
        existing = load_layout(self.directory)
        if existing is None:
            layout = new_layout(self.directory, self._options)
        else:
            layout = existing_layout(self.directory, existing, self._options)
        save_layout(self.directory, layout)

    def _forget(self) -> None:
        """Remove everything that would bind the next start to the options of this one."""
        for node in self.nodes:
            node.discard()
            files = NodeFiles(node.directory)
            shutil.rmtree(files.data, ignore_errors=True)
            files.cookie.unlink(missing_ok=True)
        forget_layout(self.directory)

    def _start_nodes(self, idle: list[Node], progress: Progress) -> None:
        # Launch all nodes before waiting for any. They wait for each other when they form their
        # cluster, and after a stop a node does not come up before the last one that went down.
        for node in idle:
            progress(f"starting {node.name}")
            node.launch()
        for node in self.nodes:  # includes nodes that an earlier start launched and did not await
            node.wait_until_ready()
            if node in idle:
                progress(f"{node.name} is ready")
        self._wait_for_cluster()

    def _wait_for_cluster(self) -> None:
        count = len(self.nodes)
        port = self.nodes[0].layout.management_port
        if not processes.wait_until(lambda: running_nodes(port) == count, START_SECONDS):
            raise BrokerProcessError(
                f"The nodes in {self.directory} are running but did not form a cluster within "
                f"{START_SECONDS:.0f} s: see their logs there."
            )

    def _end_all(self, end_node: Callable[[Node], None]) -> bool:
        if not self.directory.exists():
            return False
        with locked(self.directory):
            nodes = self.nodes
            ran = any(node.pid is not None for node in nodes)
            self._end(end_node, nodes)
            return ran

    def _end(self, end_node: Callable[[Node], None], nodes: Iterable[Node]) -> None:
        """End these nodes concurrently, and end epmd once none of the broker's nodes runs."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(end_node, nodes))
        layout = load_layout(self.directory)
        if layout is not None and all(node.pid is None for node in self.nodes):
            Epmd(self.directory, layout.epmd_port).stop()


def _ignore_progress(_step: str) -> None:
    """Ignore a progress message."""


def find_running(directory: Path | None = None) -> PrivateBroker | None:
    """Return the private broker in this folder (or the default folder) if it is running."""
    broker = PrivateBroker(directory or default_directory())
    return broker if any(node.is_running for node in broker.nodes) else None
