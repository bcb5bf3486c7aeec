"""Start, identify and end the processes of a private broker.

This file owns two rules:

1. A process is identified by its pid and its start time, so a pid that the system has reused for
   another process is never signalled.
2. Every process of a broker carries a mark in its environment. Erlang's helpers leave the process
   group of the node, so processes that a group signal misses are found by the mark.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError

MARK_VARIABLE = "RABBITDELAY_BROKER_PROCESS"

_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_KILL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Identity of one process, suitable for storing in a file."""

    pid: int
    started: str  # opaque; differs between two processes with the same pid


def spawn(
    command: Sequence[str], *, environment: Mapping[str, str], mark: str, log: Path
) -> ProcessRecord:
    """Start a process in a new session, with its output in `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**environment, MARK_VARIABLE: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    # Marked as ended, because the object would otherwise warn when it is dropped. Whether the
    # process runs is determined from its record.
    process.returncode = 0
    return ProcessRecord(process.pid, _started(process.pid) or "gone")


def is_running(record: ProcessRecord | None) -> bool:
    """Whether exactly this process runs; a zombie does not count."""
    return record is not None and _started(record.pid) == record.started


def end(record: ProcessRecord | None, *, mark: str, grace_seconds: float) -> None:
    """Send SIGTERM, then SIGKILL to everything that is left after the grace period."""
    if record is not None and is_running(record):
        _signal_quietly(os.kill, record.pid, signal.SIGTERM)
        wait_until(lambda: not is_running(record), grace_seconds)
    kill(record, mark=mark)


def kill(record: ProcessRecord | None, *, mark: str) -> None:
    """Kill the process, its group and every marked process, and wait until all have ended."""
    if record is not None and is_running(record):
        _signal_quietly(os.killpg, record.pid, signal.SIGKILL)
    for pid in marked(mark):
        _signal_quietly(os.kill, pid, signal.SIGKILL)
    if not wait_until(lambda: not is_running(record) and not marked(mark), _KILL_SECONDS):
        raise BrokerProcessError(
            f"Processes survived SIGKILL for {_KILL_SECONDS:.0f} s: {marked(mark)}."
        )


def marked(mark: str) -> list[int]:
    """Return the pids of all running processes that carry this mark."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    return [pid for pid in _all_pids() if wanted in _environment(pid)]


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Wait until the condition holds; return False if the timeout expires first."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _signal_quietly(send: Callable[[int, int], None], pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has already ended
        send(pid, number)


def _started(pid: int) -> str | None:
    """Return when this process was started, or None if it does not run."""
    if not _PROC.joinpath("self").exists():
        return _started_by_ps(pid)
    try:
        status = _PROC.joinpath(str(pid), "stat").read_text()
    except OSError:
        return None
    # The second field is the program's name and may contain spaces, so count from its bracket.
    fields = status[status.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" and _is_reaped(pid) else fields[19]


def _started_by_ps(pid: int) -> str | None:
    """Return the same as `_started` on systems without /proc."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, _, started = (
        subprocess.run(command, capture_output=True, text=True, check=False)
        .stdout.strip()
        .partition(" ")
    )
    return None if state[:1] in {"", "Z"} else started.strip()


def _is_reaped(pid: int) -> bool:
    """Whether an ended process is completely gone; reaps it if it is our child."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        # Another process started it. The main thread of a killed VM ends before the other threads,
        # and its ports stay taken until those have ended too.
        return len(list(_PROC.glob(f"{pid}/task/*"))) <= 1


def _all_pids() -> Iterator[int]:
    if _PROC.exists():
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _environment(pid: int) -> Sequence[bytes]:
    try:
        return _PROC.joinpath(str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return ()  # ended, or owned by another user
