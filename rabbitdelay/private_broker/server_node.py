"""A node that runs the machine's own rabbitmq-server."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker import configuration, plugins, processes
from rabbitdelay.private_broker.configuration import NodeFiles
from rabbitdelay.private_broker.epmd import Epmd
from rabbitdelay.private_broker.installation import Installation, require_installation
from rabbitdelay.private_broker.node import STOP_SECONDS, Node
from rabbitdelay.private_broker.processes import ProcessRecord
from rabbitdelay.private_broker.state import forget_process, load_process, save_process


@dataclass(frozen=True, slots=True)
class ServerNode(Node):
    """A node as a process of this machine."""

    @property
    def pid(self) -> int | None:
        """The pid of the Erlang VM while it runs."""
        record = self._record
        return record.pid if record is not None and processes.is_running(record) else None

    def launch(self) -> None:
        """Start its process, with the data it had, and do not wait."""
        if self.pid is not None:
            return
        self.kill()  # what outlived a node that somebody else has killed
        layout = self.layout
        self._refuse_taken_ports(layout.amqp_port, layout.management_port, layout.distribution_port)
        installation = require_installation(self._root)
        Epmd(self.broker_directory, self.broker.epmd_port).start(installation)
        configuration.write_files(self._files, self.layout, self.broker)
        save_process(self.directory, self._spawn(installation))

    def stop(self) -> None:
        """Stop it in good order, and by force if it has not ended after 20 s."""
        processes.end(self._record, mark=self._mark, grace_seconds=STOP_SECONDS)
        forget_process(self.directory)

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until nothing of it runs."""
        processes.kill(self._record, mark=self._mark)
        forget_process(self.directory)

    def read_log(self) -> str:
        """What it has printed since its last start."""
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
        """Run rabbitmqctl on the running node, and return what it printed."""
        installation = require_installation(self._root)
        program = [str(installation.server.with_name("rabbitmqctl")), *arguments]
        command = installation.command(
            program, broker=self.broker_directory, scratch=self._files.scratch
        )
        done = subprocess.run(
            command,
            env=self._own_environment(installation),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise BrokerProcessError(f"rabbitmqctl {arguments[0]} failed on {self.name}: {said}")
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
        variables = self._own_environment(installation)
        view = self._files.view
        if plugins.write_view(installation, view):
            variables.update(configuration.view_variables(view))
        return variables

    def _own_environment(self, installation: Installation) -> dict[str, str]:
        variables = configuration.environment_variables(
            self._files, self.layout, self.broker, os.environ
        )
        return variables | {"PATH": installation.search_path(os.environ)}
