"""`rabbitdelay serve` in a process of its own."""

import http.client
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rabbitdelay.private_broker.machine.ports import pick_free
from tests.support.patience import patience, wait_until

ROOT = Path(__file__).parents[3]


@contextmanager
def serving(
    broker_url: str, namespace: str, *options: str, survives_kills: bool = False
) -> Iterator["GatewayProcess"]:
    """Run a gateway inside the block, from when it is ready."""
    gateway = GatewayProcess(broker_url, namespace, options, survives_kills=survives_kills)
    try:
        wait_until(gateway.is_ready, seconds=20, what="a ready gateway")
        yield gateway
    finally:
        gateway.end()


class GatewayProcess:
    """A gateway on a free port of loopback.

    It waits for new queues to stabilise only with `survives_kills`, for tests that kill a broker.
    """

    def __init__(
        self,
        broker_url: str,
        namespace: str,
        options: Sequence[str] = (),
        *,
        survives_kills: bool = False,
    ) -> None:
        (self.port,) = pick_free(1)
        stabilise = () if survives_kills else ("--stabilise-seconds", "0")
        settings = ("--url", broker_url, "--namespace", namespace, *stabilise)
        serve = ("serve", "--port", str(self.port), "--grace", "0s", *options)
        self._command = [sys.executable, "-m", "rabbitdelay", *settings, *serve]
        self.start()

    def start(self) -> None:
        """Start the process, the first time or after it was killed."""
        self.process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=os.environ | {"RABBITDELAY_BROKER_DIR": ""},
            stderr=subprocess.DEVNULL,
        )

    @property
    def memory_mb(self) -> float:
        """Resident memory of the process, in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6

    @property
    def url(self) -> str:
        """The URL of the gateway."""
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        """Whether the gateway is connected to the broker; fail if its process has ended."""
        assert self.process.poll() is None, f"the gateway ended with {self.process.returncode}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(10))
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def end(self) -> None:
        """Stop the gateway as an operator does; kill it if it does not end."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(patience(10))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
