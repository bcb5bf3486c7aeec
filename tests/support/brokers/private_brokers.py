"""The processes of private brokers: finding leftovers, killing nodes and suspending them."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.installation.installation import find_installation
from rabbitdelay.private_broker.machine import processes
from rabbitdelay.private_broker.node.node import Node


def traces(directory: Path) -> list[str]:
    """Return what runs for the broker in this folder: processes, and containers by name."""
    epmd = [str(pid) for pid in processes.marked(str(directory / "epmd"))]
    return traces_of_node(directory / "rabbitdelay1") + epmd


def traces_of_node(directory: Path) -> list[str]:
    """Return what runs for the node in this folder, without its port mapper, which outlives it."""
    pids = [str(pid) for pid in processes.marked(str(directory))]
    return pids + (_containers(directory.parent) if is_in_docker() else [])


def kill_from_outside(broker: PrivateBroker) -> None:
    """Kill the first node without its `PrivateBroker` learning of it."""
    (node,) = broker.nodes
    if node.broker.container is not None:
        subprocess.run(["docker", "kill", node.broker.container], capture_output=True, check=True)
    elif node.pid is not None:
        os.killpg(node.pid, signal.SIGKILL)


def is_in_docker() -> bool:
    """Return whether private brokers run in Docker on this machine."""
    return find_installation() is None


@contextmanager
def standing_still(*nodes: Node) -> Iterator[None]:
    """Suspend the processes of nodes with SIGSTOP inside the block."""
    pids = [pid for node in nodes for pid in processes.marked(str(node.directory))]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _containers(directory: Path) -> list[str]:
    name = f"name=^/rabbitdelay-{directory.name.strip('.')}-"
    command = ["docker", "ps", "--quiet", "--filter", name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
