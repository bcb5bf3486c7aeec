"""What a private broker keeps in its folder: its layout, its processes, and a lock.

`broker.json` is the layout: it is written by the first start and keeps the ports, so the URL is
the same after every restart. A `process.json` beside each process's files says which process it
is. `lock` is held while a broker is started or stopped, so that two starts do not race.
"""

import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.processes import ProcessRecord

DIRECTORY_VARIABLE = "RABBITDELAY_BROKER_DIR"

_LAYOUT_FILE = "broker.json"
_PROCESS_FILE = "process.json"
_LOCK_FILE = "lock"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The name and the ports of one node."""

    name: str  # with its host, as Erlang and the management UI spell it
    amqp_port: int
    management_port: int
    distribution_port: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What stays the same over the life of a broker's folder."""

    nodes: tuple[NodeLayout, ...]
    epmd_port: int
    cookie: str = field(repr=False)
    root: str | None = None  # the folder that holds its RabbitMQ, when not the machine's own
    container: str | None = None  # the Docker container, when it runs in one
    extra_config: Mapping[str, str] = field(default_factory=dict)


def default_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the broker that `rabbitdelay broker` starts."""
    told = environment.get(DIRECTORY_VARIABLE)
    if told:
        return Path(told).absolute()
    state_home = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "rabbitdelay" / "broker"


def export_line(directory: Path) -> str:
    """The line for a shell that makes every command find the broker in this folder."""
    return f"export {DIRECTORY_VARIABLE}={shlex.quote(str(directory))}"


def load_layout(directory: Path) -> Layout | None:
    """The layout of the broker in this folder; None when it was never started."""
    values = _read_json(directory / _LAYOUT_FILE)
    if values is None:
        return None
    if values.pop("version", None) != _VERSION:
        raise BrokerProcessError(
            f"{directory} was made by another version of rabbitdelay: stop that broker with it, "
            "and remove the folder or choose another."
        )
    nodes = tuple(NodeLayout(**node) for node in values.pop("nodes"))
    return Layout(nodes=nodes, **values)


def save_layout(directory: Path, layout: Layout) -> None:
    """Keep the layout."""
    _write_json(directory / _LAYOUT_FILE, {"version": _VERSION, **asdict(layout)})


def forget_layout(directory: Path) -> None:
    """Let the next start be the first."""
    (directory / _LAYOUT_FILE).unlink(missing_ok=True)


def load_process(directory: Path) -> ProcessRecord | None:
    """The process that was last started for the files in this folder."""
    values = _read_json(directory / _PROCESS_FILE)
    return None if values is None else ProcessRecord(**values)


def save_process(directory: Path, record: ProcessRecord) -> None:
    """Keep which process it is."""
    _write_json(directory / _PROCESS_FILE, asdict(record))


def forget_process(directory: Path) -> None:
    """Keep no process: it was stopped, and did not end by itself."""
    (directory / _PROCESS_FILE).unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of this broker's folder; waits for whoever has it."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (directory / _LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BrokerProcessError(f"{path} cannot be read: {error}") from error
    return values


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write it whole or not at all, for its owner only: the cookie is a key to the node."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(values, indent=2) + "\n")
    draft.replace(path)
