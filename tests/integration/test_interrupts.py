"""Signal handlers that raise: an interrupted call ends, and the client works as before.

This concerns only the sync front end, whose callers wait in their own thread. In asyncio a handler
that raises ends the event loop and everything that runs on it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ReceiverFactory
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("times", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_client_survives_interrupts_of_its_calls(
    times: int, broker_url: str, namespace: str, receive: ReceiverFactory
) -> None:
    program = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.programs.interrupted_client",
            broker_url,
            namespace,
            str(times),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience(20 + times / 100),
        check=False,
    )
    assert (program.returncode, program.stderr) == (0, "")
    outcome = json.loads(program.stdout)
    assert not outcome["hangs"]
    assert outcome["others"] > 0
    receive("t").wait_for("last")
