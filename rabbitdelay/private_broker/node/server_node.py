"""A node that runs the rabbitmq-server installed on this machine."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.installation import configuration, plugins
from rabbitdelay.private_broker.installation.configuration import NodeFiles
from rabbitdelay.private_broker.installation.installation import Installation, require_installation
from rabbitdelay.private_broker.machine import processes
from rabbitdelay.private_broker.machine.processes import ProcessRecord
from rabbitdelay.private_broker.node.epmd import Epmd
from rabbitdelay.private_broker.node.node import STOP_SECONDS, Node
from rabbitdelay.private_broker.state import forget_process, load_process, save_process


@dataclass(frozen=True, slots=True)
class ServerNode(Node):
    """A node as a process on this machine."""

    @property
    def pid(self) -> int | None:
        """Pid of the Erlang VM while it runs."""
        record = self._record
        return record.pid if record is not None and processes.is_running(record) else None

    def launch(self) -> None:
        """Start the node with its existing data, and return without waiting."""
        if self.pid is not None:
            return
        self.kill()  # helpers that outlived a node killed from outside
        layout = self.layout
        self._refuse_taken_ports(layout.amqp_port, layout.management_port, layout.distribution_port)
        installation = require_installation(self._root)
        Epmd(self.broker_directory, self.broker.epmd_port).start(installation)
        configuration.write_files(self._files, self.layout, self.broker)
        save_process(self.directory, self._spawn(installation))

    def stop(self) -> None:
        """Stop the node cleanly, or by force if it is still running after 20 s."""
        processes.end(self._record, mark=self._mark, grace_seconds=STOP_SECONDS)
        forget_process(self.directory)

    def kill(self) -> None:
        """Kill the node with SIGKILL and wait until all of its processes have ended."""
        processes.kill(self._record, mark=self._mark)
        forget_process(self.directory)

    def read_log(self) -> str:
        """Return the console output since the node's last start."""
        return self._files.console.read_text(errors="replace")

    @property
    def _record(self) -> ProcessRecord | None:
        return load_process(self.directory)

    @property
    def _mark(self) -> str:
        return str(self.directory)

    @property
    def _files(self) -> NodeFiles:
        return NodeFiles(self.directory)

    @property
    def _root(self) -> Path | None:
        return Path(self.broker.root) if self.broker.root else None

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on the running node and return its output."""
        installation = require_installation(self._root)
        program = [str(installation.server.with_name("rabbitmqctl")), *arguments]
        command = installation.command(
            program, broker=self.broker_directory, scratch=self._files.scratch
        )
        done = subprocess.run(
            command,
            env=self._base_environment(installation),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            output = (done.stderr or done.stdout).strip()
            raise BrokerProcessError(f"rabbitmqctl {arguments[0]} failed on {self.name}: {output}")
        return done.stdout

    def _spawn(self, installation: Installation) -> ProcessRecord:
        program = [str(installation.server)]
        return processes.spawn(
            installation.command(
                program, broker=self.broker_directory, scratch=self._files.scratch
            ),
            environment=self._environment(installation),
            mark=self._mark,
            log=self._files.console,
        )

    def _environment(self, installation: Installation) -> dict[str, str]:
        variables = self._base_environment(installation)
        view = self._files.view
        if plugins.write_view(installation, view):
            variables.update(configuration.view_variables(view))
        return variables

    def _base_environment(self, installation: Installation) -> dict[str, str]:
        variables = configuration.environment_variables(
            self._files, self.layout, self.broker, os.environ
        )
        return variables | {"PATH": installation.search_path(os.environ)}
