import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitdelay.private_broker.machine import processes
from rabbitdelay.private_broker.machine.processes import ProcessRecord

ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    processes.kill(None, mark=str(tmp_path))


def spawn(script: str, mark: str) -> ProcessRecord:
    command = ["sh", "-c", script]
    log = Path(mark) / "log"
    return processes.spawn(command, environment=ENVIRONMENT, mark=mark, log=log)


def test_a_process_runs_until_it_is_ended(mark: str) -> None:
    record = spawn("sleep 60", mark)
    assert processes.is_running(record)
    processes.end(record, mark=mark, grace_seconds=5)
    assert not processes.is_running(record)


def test_a_pid_with_another_start_time_is_another_process(mark: str) -> None:
    """Pids are reused, and a process that reuses ours must not be signalled."""
    stranger = spawn("sleep 60", mark)
    stale = ProcessRecord(stranger.pid, "1")
    assert not processes.is_running(stale)
    processes.end(stale, mark="/another", grace_seconds=5)
    processes.kill(stale, mark="/another")
    assert processes.is_running(stranger)


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace_period(mark: str) -> None:
    record = spawn("trap '' TERM; echo ready; while :; do sleep 0.1; done", mark)
    assert processes.wait_until(lambda: "ready" in (Path(mark) / "log").read_text(), 5)
    processes.end(record, mark=mark, grace_seconds=0.2)
    assert not processes.is_running(record)


def test_a_process_that_left_the_group_is_killed_by_its_mark(mark: str) -> None:
    """Each of Erlang's helper processes has its own session."""
    record = spawn("setsid sleep 60 & wait", mark)
    assert processes.wait_until(lambda: len(processes.marked(mark)) == 2, 5)
    processes.kill(record, mark=mark)
    assert processes.marked(mark) == []


def test_an_ended_child_is_not_left_as_a_zombie(mark: str) -> None:
    record = spawn("exit 1", mark)
    assert processes.wait_until(lambda: not processes.is_running(record), 5)
    assert not Path(f"/proc/{record.pid}").exists()
