"""Forks and the end of the interpreter: no hang, and no silent loss."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rabbitdelay import Client
from rabbitdelay.private_broker import PrivateBroker
from tests.conftest import ClientFactory, ReceiverFactory
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]


def run_script(
    script: str, *arguments: str, seconds: float = 30
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience(seconds),
        check=False,
    )


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12: fork, threads
def test_parent_and_forked_child_both_put(client: Client, receive: ReceiverFactory) -> None:
    client.put("t", id="before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.put("t", id="child")
            client.close()
            code = 0
        finally:
            os._exit(code)
    client.put("t", id="parent")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    client.put("t", id="after")
    receive("t").wait_for("before", "child", "parent", "after")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_closes_the_parents_socket(make_client: ClientFactory) -> None:
    """Otherwise a parent that dies would leave its connection open while the child lives."""
    client = make_client()
    client.put("t")
    connection = client._engine.connections._publishers.opened._connector.connection  # type: ignore[union-attr]  # on purpose
    number = connection._transport._sock.fileno()  # type: ignore[union-attr]  # on purpose
    child = os.fork()
    if child == 0:
        try:
            os.fstat(number)
        except OSError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


LEFT_OPEN = """
import sys
from rabbitdelay import Client
client = Client(sys.argv[1], namespace=sys.argv[2], stabilise_seconds=0)
for number in range(3000):
    client.put_nowait("t", number)
"""


def test_a_client_left_open_at_exit_flushes(
    broker_url: str, namespace: str, receive: ReceiverFactory
) -> None:
    done = run_script(LEFT_OPEN, broker_url, namespace)
    assert (done.returncode, done.stderr) == (0, "")
    receive("t").wait_for_count(3_000)


def test_an_idle_client_left_open_does_not_delay_the_exit(broker_url: str) -> None:
    script = "import sys; from rabbitdelay import Client; c = Client(sys.argv[1]); c.connect()"
    started = time.monotonic()
    done = run_script(script, broker_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - started < patience(10)


def start_script(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a script that prints `ready` and then waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


CANNOT_FLUSH = """
import sys
from rabbitdelay import Client
client = Client(sys.argv[1], namespace=sys.argv[2], stabilise_seconds=0)
client.put("t", id="confirmed")
print("ready", flush=True)
sys.stdin.readline()
client.put_nowait("t", id="not-confirmed")
"""


def test_puts_that_cannot_be_flushed_at_exit_are_reported(
    breakable_broker: PrivateBroker, namespace: str
) -> None:
    process = start_script(CANNOT_FLUSH, breakable_broker.url, namespace)
    breakable_broker.nodes[0].kill()
    _, errors = process.communicate("go\n", timeout=patience(30))
    assert process.returncode == 0
    assert "1 puts not confirmed: not-confirmed" in errors
    assert "Traceback" not in errors


WAITING = """
import sys
from rabbitdelay import Client
client = Client(sys.argv[1], namespace=sys.argv[2], stabilise_seconds=0)
client.put("t")
print("ready", flush=True)
sys.stdin.readline()
client.put("t", timeout=60)
"""


def test_control_c_ends_a_waiting_put(breakable_broker: PrivateBroker, namespace: str) -> None:
    process = start_script(WAITING, breakable_broker.url, namespace)
    assert process.stdin is not None
    breakable_broker.nodes[0].kill()
    process.stdin.write("go\n")
    process.stdin.flush()
    time.sleep(0.5)  # until it is in the put; an earlier signal ends it as well
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=patience(30))
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
