"""`rabbitdelay demo`: runs to its end without a terminal, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from rabbitdelay.broker import PrivateBroker
from rabbitdelay.cli.display import output
from rabbitdelay.demo import theatre
from rabbitdelay.demo.stage import Stage
from tests.support.waiting import wait_until


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Everything temporary lies in a folder of the test."""
    return {**os.environ, "TMPDIR": str(tmp_path)}


def test_the_story_ends_well(
    program: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    began = time.monotonic()
    result = subprocess.run(
        [*program, "demo"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert time.monotonic() - began < 50
    assert "✔ 0 early, 0 lost, 0 doubled" in result.stdout
    assert "How late were the 107 arrivals?" in result.stdout
    assert_in_order(
        result.stdout,
        *("hangs: goes back after 2 s", "Niklaus, a compass.*not paid: closed"),
    )
    assert_in_order(
        result.stdout,
        *("fails: attempt 1", "fails: attempt 2", "Donald, an organ.*not paid: closed"),
    )
    assert_in_order(
        result.stdout,
        *("buried, until kicked", "there is no such moon.*kicked", "Margaret, a moon.*closed"),
    )
    assert re.search(r"p50 \d+ ms, p99 \d+ ms, max \d+ ms", result.stdout)
    assert re.search(r"management UI +http://127.0.0.1:\d+/ +\(guest, guest\)", result.stdout)
    assert "\x1b" not in result.stdout, "no control characters"
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_kept_broker_says_how_to_find_it(capsys: pytest.CaptureFixture[str]) -> None:
    broker = Mock(spec=PrivateBroker, directory=Path("/tmp/an other"), url="amqp://x")  # noqa: S108 - not made
    theatre.say_where(Stage(output()), broker, keep=True)
    text = capsys.readouterr().out
    assert "export RABBITDELAY_BROKER_DIR='/tmp/an other'" in text
    assert "rabbitdelay broker stop --dir '/tmp/an other'" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(
    program: list[str], environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*program, "demo"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_until(lambda: processes_in(tmp_path), what="the broker is starting")
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"interrupted\n")
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def assert_in_order(text: str, *patterns: str) -> None:
    assert re.search("(?s)" + ".*".join(f"(?-s:{one})" for one in patterns), text), text


def processes_in(folder: Path) -> list[str]:
    """The brokers' processes that were started for this folder."""
    mark = f"RABBITDELAY_BROKER_PROCESS={folder}".encode()
    return [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and mark in _environment(entry)
    ]


def _environment(process: Path) -> bytes:
    try:
        return process.joinpath("environ").read_bytes()
    except OSError:
        return b""
