"""The processes of a private broker: started, recognised and ended.

1. A process is known by its pid and its start time, so a pid that the system has given to
   somebody else is never signalled.
2. Every process of a broker carries a mark in its environment. Erlang's helpers leave the process
   group of the node, so what a group signal misses is found by the mark.
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
    """One process, in a form that survives in a file."""

    pid: int
    started: str  # opaque: differs between two processes that had the same pid


def spawn(
    command: Sequence[str], *, environment: Mapping[str, str], mark: str, log: Path
) -> ProcessRecord:
    """Start a process in a session of its own, with its output in `log`."""
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
    # Whether it runs is asked of the system, by record: the object would only warn when dropped.
    process.returncode = 0
    return ProcessRecord(process.pid, _started(process.pid) or "gone")


def is_running(record: ProcessRecord | None) -> bool:
    """Whether this very process runs; a zombie does not."""
    return record is not None and _started(record.pid) == record.started


def end(record: ProcessRecord | None, *, mark: str, grace_seconds: float) -> None:
    """End the process: SIGTERM, and SIGKILL to all that is left when the grace is over."""
    if record is not None and is_running(record):
        _signal_quietly(os.kill, record.pid, signal.SIGTERM)
        wait_until(lambda: not is_running(record), grace_seconds)
    kill(record, mark=mark)


def kill(record: ProcessRecord | None, *, mark: str) -> None:
    """SIGKILL the process, its group and whatever carries the mark, and wait until all are gone."""
    if record is not None and is_running(record):
        _signal_quietly(os.killpg, record.pid, signal.SIGKILL)
    for pid in marked(mark):
        _signal_quietly(os.kill, pid, signal.SIGKILL)
    if not wait_until(lambda: not is_running(record) and not marked(mark), _KILL_SECONDS):
        raise BrokerProcessError(f"These processes do not end: {marked(mark)}.")


def marked(mark: str) -> list[int]:
    """The pids of all running processes that carry this mark."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    return [pid for pid in _all_pids() if wanted in _environment(pid)]


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Wait for the condition; False when the time is over first."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _signal_quietly(send: Callable[[int, int], None], pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it went by itself, which is what we want
        send(pid, number)


def _started(pid: int) -> str | None:
    """When this process was started, or None when it does not run."""
    if not _PROC.joinpath("self").exists():
        return _started_by_ps(pid)
    try:
        status = _PROC.joinpath(str(pid), "stat").read_text()
    except OSError:
        return None
    # The second field is the program's name and may hold spaces: count from its closing bracket.
    fields = status[status.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" and _is_reaped(pid) else fields[19]


def _started_by_ps(pid: int) -> str | None:
    """The same where there is no /proc."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, _, started = (
        subprocess.run(command, capture_output=True, text=True, check=False)
        .stdout.strip()
        .partition(" ")
    )
    return None if state[:1] in {"", "Z"} else started.strip()


def _is_reaped(pid: int) -> bool:
    """Whether nothing of an ended process runs; takes the exit status when it was our child."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        # Another process started it. The main thread of a killed VM ends before its others, and
        # its ports are taken until they have ended too.
        return len(list(_PROC.glob(f"{pid}/task/*"))) <= 1


def _all_pids() -> Iterator[int]:
    if _PROC.exists():
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _environment(pid: int) -> Sequence[bytes]:
    try:
        return _PROC.joinpath(str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return ()  # gone, or another user's
