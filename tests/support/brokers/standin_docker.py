"""A stand-in for the `docker` program: its containers forward to a broker that already runs.

It answers the command lines that rabbitdelay builds as an engine would, for machines without one.
It cannot show what happens inside a real container. `install` installs it as a program of its
own, which keeps its containers as files in a folder:

    image       exists if the engine has the image; `pull` fails, as without a registry
    taken       exists if another container occupies the port
    NAME.json   a container: its command line, its process, and whether it runs
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = "STANDIN_DOCKER_FOLDER"
AMQP, MANAGEMENT = "STANDIN_DOCKER_AMQP", "STANDIN_DOCKER_MANAGEMENT"
"""The ports of the broker that all containers forward to."""
PORT_TAKEN = "Bind for 127.0.0.1:{port} failed: port is already allocated."
SETTINGS = (
    "[{dead_letter_worker_publisher_confirm_timeout,5000},"
    "{consumer_timeout,1800000},{max_message_size,16777216}]"
)


def install(folder: Path) -> Path:
    """Write the program into a folder for PATH; return the folder of its containers."""
    program = folder / "bin" / "docker"
    program.parent.mkdir(parents=True)
    root = Path(__file__).parents[3]
    program.write_text(
        f"#!{sys.executable}\nimport sys; sys.path.insert(0, {str(root)!r})\n"
        "from tests.support.brokers.standin_docker import main; main(sys.argv[1:])\n"
    )
    program.chmod(0o755)
    containers = folder / "containers"
    containers.mkdir()
    return containers


class Engine:
    """The containers in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def version(self, *_: str) -> None:
        _say("27.0.0")

    def image(self, *_: str) -> None:
        sys.exit(0 if (self._folder / "image").exists() else 1)

    def pull(self, *_: str) -> None:
        sys.exit("Error response from daemon: no route to host")

    def run(self, *arguments: str) -> None:
        name = arguments[arguments.index("--name") + 1]
        if (self._folder / "taken").exists():
            self._save(name, {"arguments": arguments, "Running": False, "Pid": 0})
            port = _published(arguments)[0].split(":")[1]
            _say(PORT_TAKEN.format(port=port))
            sys.exit(125)
        if not _is_readable(arguments):
            self._save(name, {"arguments": arguments, "Running": False, "Pid": 0})
            return  # the engine started it, but RabbitMQ could not read its configuration
        self._launch(name, list(arguments))

    def start(self, name: str) -> None:
        self._launch(name, self._load(name)["arguments"])

    def stop(self, *arguments: str) -> None:
        self.kill(arguments[-1])

    def kill(self, name: str) -> None:
        container = self._load(name)
        if container["Running"]:
            os.kill(container["Pid"], signal.SIGKILL)
            _wait_for_end(container["Pid"])
        self._save(name, container | {"Running": False, "Pid": 0})

    def wait(self, _name: str) -> None:
        _say(137)

    def rm(self, *arguments: str) -> None:
        self.kill(arguments[-1])
        self._path(arguments[-1]).unlink()

    def logs(self, _name: str) -> None:
        _say("cannot read /etc/rabbitmq/conf.d/90-rabbitdelay.conf: permission denied")

    def inspect(self, *arguments: str) -> None:
        container = self._load(arguments[-1])
        _say(json.dumps({"Running": container["Running"], "Pid": container["Pid"]}))

    def ps(self, *arguments: str) -> None:
        prefix = arguments[-1].removeprefix("name=^/")
        for path in self._folder.glob(f"{prefix}*.json"):
            if self._load(path.stem)["Running"]:
                _say(path.stem)

    def exec(self, name: str, *arguments: str) -> None:
        assert self._load(name)["Running"]
        assert arguments[:2] == ("rabbitmqctl", "eval")
        _say(SETTINGS)

    def _launch(self, name: str, arguments: list[str]) -> None:
        ports = [int(one.split(":")[1]) for one in _published(arguments)]
        pid = os.fork()
        if pid == 0:
            _forward_for_ever(zip(ports, (AMQP, MANAGEMENT), strict=True))
        self._save(name, {"arguments": arguments, "Running": True, "Pid": pid})

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _load(self, name: str) -> dict[str, Any]:
        if not self._path(name).exists():
            _say(f"Error: No such object: {name}")
            sys.exit(1)
        container: dict[str, Any] = json.loads(self._path(name).read_text())
        return container

    def _save(self, name: str, container: dict[str, Any]) -> None:
        self._path(name).write_text(json.dumps(container))


def _wait_for_end(pid: int) -> None:
    """Return when a killed process has ended, as the engine does."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")


def _published(arguments: tuple[str, ...] | list[str]) -> list[str]:
    return [arguments[at + 1] for at, word in enumerate(arguments) if word == "--publish"]


def _is_readable(arguments: tuple[str, ...]) -> bool:
    """Return whether the container's user, which is another one, can read the mounted file."""
    volume = arguments[arguments.index("--volume") + 1]
    return bool(Path(volume.split(":")[0]).stat().st_mode & 0o004)


def _forward_for_ever(ports: Any) -> None:  # noqa: ANN401 - pairs of a port and a variable
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    for port, variable in ports:
        listener = socket.create_server(("127.0.0.1", port))
        target = ("127.0.0.1", int(os.environ[variable]))
        threading.Thread(target=_serve, args=(listener, target)).start()
    threading.Event().wait()


def _serve(listener: socket.socket, target: tuple[str, int]) -> None:
    while True:
        client, _ = listener.accept()
        broker = socket.create_connection(target)
        for ends in ((client, broker), (broker, client)):
            threading.Thread(target=_copy, args=ends, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


def main(arguments: list[str]) -> None:
    """Execute one command line."""
    command, *rest = arguments
    getattr(Engine(Path(os.environ[FOLDER])), command)(*rest)
