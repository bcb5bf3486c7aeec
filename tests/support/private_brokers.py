"""What is left of a private broker on this machine, as processes or in Docker."""

import subprocess
from pathlib import Path

from rabbitdelay.broker import processes
from rabbitdelay.broker.installation import find_installation


def traces(directory: Path) -> list[str]:
    """Return what runs for the broker in this folder: processes and containers by name."""
    marks = [str(directory / "rabbitdelay1"), str(directory / "epmd")]
    pids = [str(pid) for mark in marks for pid in processes.marked(mark)]
    return pids + (_containers(directory) if is_in_docker() else [])


def is_in_docker() -> bool:
    """Return whether private brokers run in Docker on this machine."""
    return find_installation() is None


def _containers(directory: Path) -> list[str]:
    name = f"name=^/rabbitdelay-{directory.name.strip('.')}-"
    command = ["docker", "ps", "--quiet", "--filter", name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
