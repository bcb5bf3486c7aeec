"""The broker's own epmd, the name service through which Erlang nodes on one machine connect.

A node that finds no epmd starts one itself, as a daemon on the machine's default port, and that
daemon never ends. So each broker runs its own epmd on its own port and stops it when it stops.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.installation.installation import Installation
from rabbitdelay.private_broker.machine import processes
from rabbitdelay.private_broker.machine.ports import LOOPBACK, accepts_connections
from rabbitdelay.private_broker.machine.processes import ProcessRecord
from rabbitdelay.private_broker.state import load_process, save_process

_READY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Epmd:
    """One epmd process, with its files in the broker's folder `epmd`."""

    broker_directory: Path
    port: int

    def start(self, installation: Installation) -> None:
        """Start epmd unless it is running, and wait until it listens."""
        if processes.is_running(self._record):
            return
        self._directory.mkdir(exist_ok=True)
        save_process(self._directory, self._spawn(installation))
        processes.wait_until(self._listens_or_ended, _READY_SECONDS)
        if not (processes.is_running(self._record) and accepts_connections(self.port)):
            self.stop()
            raise BrokerProcessError(f"epmd did not start on port {self.port}: see {self._log}")

    def stop(self) -> None:
        """Kill epmd, which stores nothing."""
        processes.kill(self._record, mark=self._mark)

    @property
    def _directory(self) -> Path:
        return self.broker_directory / "epmd"

    @property
    def _mark(self) -> str:
        return str(self._directory)

    @property
    def _log(self) -> Path:
        return self._directory / "console.log"

    @property
    def _record(self) -> ProcessRecord | None:
        return load_process(self._directory)

    def _listens_or_ended(self) -> bool:
        return accepts_connections(self.port) or not processes.is_running(self._record)

    def _spawn(self, installation: Installation) -> ProcessRecord:
        program = [str(installation.epmd), "-port", str(self.port), "-address", LOOPBACK]
        scratch = self._directory / "scratch"
        return processes.spawn(
            installation.command(program, broker=self.broker_directory, scratch=scratch),
            environment={"PATH": installation.search_path(os.environ)},
            mark=self._mark,
            log=self._log,
        )
