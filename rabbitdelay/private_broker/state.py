"""Files in a private broker's folder: its layout, its processes and a lock.

The first start writes the layout, `broker.json`. The layout contains the ports, so the URL is the
same after every restart. A `process.json` beside each process's files identifies that process.
`lock` is held while a broker is started or stopped, so that two starts do not race.
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
from rabbitdelay.private_broker.machine.processes import ProcessRecord

DIRECTORY_VARIABLE = "RABBITDELAY_BROKER_DIR"

_LAYOUT_FILE = "broker.json"
_PROCESS_FILE = "process.json"
_LOCK_FILE = "lock"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Name and ports of one node."""

    name: str  # with its host, as shown by Erlang and the management UI
    amqp_port: int
    management_port: int
    distribution_port: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Properties of a broker that stay the same for the life of its folder."""

    nodes: tuple[NodeLayout, ...]
    epmd_port: int
    cookie: str = field(repr=False)
    root: str | None = None  # root folder of its RabbitMQ; None: the machine's own
    container: str | None = None  # name of its Docker container; None: not in Docker
    extra_config: Mapping[str, str] = field(default_factory=dict)


def default_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the default folder of the broker that `rabbitdelay broker` starts."""
    chosen = environment.get(DIRECTORY_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    state_home = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "rabbitdelay" / "broker"


def export_line(directory: Path) -> str:
    """Return the shell line that makes every command find the broker in this folder."""
    return f"export {DIRECTORY_VARIABLE}={shlex.quote(str(directory))}"


def load_layout(directory: Path) -> Layout | None:
    """Return the layout of the broker in this folder, or None if it was never started."""
    values = _read_json(directory / _LAYOUT_FILE)
    if values is None:
        return None
    if values.pop("version", None) != _VERSION:
        raise BrokerProcessError(
            f"{directory} was created by another version of rabbitdelay: stop that broker with "
            "that version, then remove the folder or choose another."
        )
    nodes = tuple(NodeLayout(**node) for node in values.pop("nodes"))
    return Layout(nodes=nodes, **values)


def save_layout(directory: Path, layout: Layout) -> None:
    """Save the layout."""
    _write_json(directory / _LAYOUT_FILE, {"version": _VERSION, **asdict(layout)})


def forget_layout(directory: Path) -> None:
    """Remove the layout, so that the next start counts as the first."""
    (directory / _LAYOUT_FILE).unlink(missing_ok=True)


def load_process(directory: Path) -> ProcessRecord | None:
    """Return the process that was last started for the files in this folder."""
    values = _read_json(directory / _PROCESS_FILE)
    return None if values is None else ProcessRecord(**values)


def save_process(directory: Path, record: ProcessRecord) -> None:
    """Save the identity of the process."""
    _write_json(directory / _PROCESS_FILE, asdict(record))


def forget_process(directory: Path) -> None:
    """Remove the identity of the process, which marks it as stopped on purpose."""
    (directory / _PROCESS_FILE).unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of this broker's folder inside the block, waiting for it if necessary."""
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
        raise BrokerProcessError(
            f"{path} cannot be read ({error}): fix the file, or remove the folder."
        ) from error
    return values


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write the file atomically and readable only by its owner, because it contains the cookie."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(values, indent=2) + "\n")
    draft.replace(path)
