"""A private RabbitMQ: one node, or a cluster of several on this machine."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rabbitdelay.errors import BrokerProcessError, InvalidConfiguration
from rabbitdelay.private_broker import processes
from rabbitdelay.private_broker.configuration import NodeFiles
from rabbitdelay.private_broker.docker import DockerNode
from rabbitdelay.private_broker.epmd import Epmd
from rabbitdelay.private_broker.layout import Wishes, kept_layout, new_layout
from rabbitdelay.private_broker.node import START_SECONDS, Node
from rabbitdelay.private_broker.readiness import running_nodes
from rabbitdelay.private_broker.server_node import ServerNode
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
    """How one node is."""

    name: str
    running: bool
    pid: int | None
    url: str
    management_url: str


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """How a broker and its nodes are."""

    directory: Path
    running: bool  # at least one node serves
    nodes: tuple[NodeStatus, ...]  # none before the first start


class PrivateBroker:
    """A RabbitMQ of one's own in a folder: data, ports and logs, kept from one start to the next.

    Args:
        directory: its folder, made by the first start.
        nodes: how many nodes; when absent as many as the folder has, or one.
        port: the AMQP port of the first node; when absent the one it had, or a free one.
        root: a folder that holds a whole system with RabbitMQ in it, to run that one in a chroot.
        extra_config: more lines for rabbitmq.conf, kept in the folder. Files that they name must
            lie in `directory` to be seen from a chroot.
        docker: run it in Docker, also where rabbitmq-server is installed.
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
            raise InvalidConfiguration("A broker has at least one node.")
        self.directory = Path(directory).absolute()
        self._wishes = Wishes(nodes, port, root, extra_config, docker)

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
        """A started broker in a temporary folder; at the end nothing of it is left."""
        directory = Path(tempfile.mkdtemp(prefix="rabbitdelay-broker-"))
        broker = cls(directory, nodes=nodes, root=root, extra_config=extra_config)
        try:
            broker.start(progress)
            yield broker
        finally:
            broker.discard()

    @property
    def url(self) -> str:
        """The AMQP URL of the first node that runs, or of the first when none does."""
        return self._main_node.url

    @property
    def management_url(self) -> str:
        """The address of that node's management UI."""
        return self._main_node.management_url

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes; none before the first start."""
        broker = load_layout(self.directory)
        if broker is None:
            return ()
        kind = ServerNode if broker.container is None else DockerNode
        return tuple(kind(self.directory, broker, layout) for layout in broker.nodes)

    def start(self, progress: Progress | None = None) -> bool:
        """Start every node that does not run, and wait until all serve as one cluster.

        False when all ran already. When it fails, or is interrupted, the nodes that this call has
        launched are killed, and a folder that was new is as new again but for its logs.
        """
        with locked(self.directory):
            is_first = load_layout(self.directory) is None
            self._settle_layout()
            idle = [node for node in self.nodes if node.pid is None]
            try:
                self._start_nodes(idle, progress or _say_nothing)
            except BaseException:
                self._end(lambda node: node.kill(), idle)
                if is_first:
                    self._forget()
                raise
        return bool(idle)

    def stop(self, progress: Progress | None = None) -> bool:
        """Stop every node in good order; False when none ran."""
        for node in self.nodes:
            if node.pid is not None:
                (progress or _say_nothing)(f"stopping {node.name}")
        return self._end_all(lambda node: node.stop())

    def kill(self) -> bool:
        """Kill every node with SIGKILL; False when none ran."""
        return self._end_all(lambda node: node.kill())

    def discard(self) -> None:
        """Kill every node and remove the folder, with all data."""
        self._end_all(lambda node: node.discard())
        shutil.rmtree(self.directory, ignore_errors=True)

    def status(self) -> BrokerStatus:
        """How it and its nodes are now."""
        nodes = tuple(
            NodeStatus(node.name, node.is_running, node.pid, node.url, node.management_url)
            for node in self.nodes
        )
        return BrokerStatus(self.directory, any(node.running for node in nodes), nodes)

    @property
    def was_started(self) -> bool:
        """Whether one of its nodes was started and not stopped since, running or not."""
        return any(node.was_started for node in self.nodes)

    @property
    def _main_node(self) -> Node:
        nodes = self.nodes
        if not nodes:
            raise BrokerProcessError(f"No broker was ever started in {self.directory}.")
        return next((node for node in nodes if node.is_running), nodes[0])

    def _settle_layout(self) -> None:
        existing = load_layout(self.directory)
        if existing is None:
            layout = new_layout(self.directory, self._wishes)
        else:
            layout = kept_layout(self.directory, existing, self._wishes)
        save_layout(self.directory, layout)

    def _forget(self) -> None:
        """Remove what would tie the next start to the wishes of this one."""
        for node in self.nodes:
            node.discard()
            files = NodeFiles(node.directory)
            shutil.rmtree(files.data, ignore_errors=True)
            files.cookie.unlink(missing_ok=True)
        forget_layout(self.directory)

    def _start_nodes(self, idle: list[Node], progress: Progress) -> None:
        # All at once: each waits for the others when they form their cluster, and after a stop
        # none of them may come up before it has seen the last one to go down.
        for node in idle:
            progress(f"starting {node.name}")
            node.launch()
        for node in self.nodes:  # those too that an earlier start has launched and not waited for
            node.wait_until_ready()
            if node in idle:
                progress(f"{node.name} is ready")
        self._wait_for_cluster()

    def _wait_for_cluster(self) -> None:
        count = len(self.nodes)
        port = self.nodes[0].layout.management_port
        if not processes.wait_until(lambda: running_nodes(port) == count, START_SECONDS):
            raise BrokerProcessError(
                f"The nodes in {self.directory} run and have not joined into one cluster."
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
        """End these nodes, all at once, and epmd with the last of the broker's nodes."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(end_node, nodes))
        layout = load_layout(self.directory)
        if layout is not None and all(node.pid is None for node in self.nodes):
            Epmd(self.directory, layout.epmd_port).stop()


def _say_nothing(_step: str) -> None:
    """The progress of a call that nobody watches."""


def find_running(directory: Path | None = None) -> PrivateBroker | None:
    """The private broker in this folder, or in the default one, when it runs."""
    broker = PrivateBroker(directory or default_directory())
    return broker if any(node.is_running for node in broker.nodes) else None
