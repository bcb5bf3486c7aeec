"""The worker's handle to one process in which handlers run.

This file owns two rules:

1. One thread at a time communicates with a process, and that thread ends it. Others may only kill
   it.
2. A process is killed with its whole group, but never after it has been reaped, because its pid may
   be reused from then on.

Processes are spawned, because forking a process with threads copies locks that are never released.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import connection, resource_tracker
from multiprocessing.context import SpawnProcess
from typing import Any

from rabbitdelay.executors.processes import process_main
from rabbitdelay.executors.processes.process_messages import HandlerCall, HandlerName, Reply

DEATH_SECONDS = 1.0
"""Seconds that a process with a closed pipe may take to end on its own."""
END_SECONDS = 5.0
"""Seconds to wait for a killed process, which takes longer only if the kernel blocks it."""

_spawn = multiprocessing.get_context("spawn")
_reaping = threading.Lock()
"""Whenever multiprocessing starts a process, it reaps those that have ended. A concurrent wait for
one of them would lose the exit code."""


class HandlerProcess:
    """A process that is starting, running a handler, idle or ended."""

    def __init__(self, names: Sequence[HandlerName]) -> None:
        self._lock = threading.Lock()
        self._work: object = None
        self._may_be_killed = True
        self.was_killed = False
        self.is_ended = False
        self._connection, theirs = _spawn.Pipe()
        self._process = _spawn.Process(
            target=process_main.run, args=(theirs, names), name="rabbitdelay-handler", daemon=True
        )
        try:
            _start(self._process)
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()

    # For the thread that uses the process

    def send(self, message: HandlerCall | Reply) -> None:
        """Send a message; raise OSError if the process has ended."""
        self._connection.send(message)

    def has_message(self, seconds: float | None) -> bool:
        """Whether a message or the end of the pipe arrives within this time."""
        return self._connection.poll(seconds)

    def receive(self) -> Any:  # noqa: ANN401 - any message
        """Receive a message; raise EOFError or OSError if the process has ended."""
        return self._connection.recv()

    def set_work(self, work: object) -> None:
        """Set the current work, the only one for which `kill_if_running` kills the process."""
        with self._lock:
            self._work = work

    def close_pipe(self) -> None:
        """Close the pipe, which makes an idle process end on its own."""
        self._connection.close()

    def end(self, patience_seconds: float = DEATH_SECONDS) -> int | None:
        """Wait for the process to end, kill what is left of its group and return its exit code."""
        connection.wait([self._process.sentinel], 0 if self.was_killed else patience_seconds)
        with _reaping:
            with self._lock:
                _kill_group(self._process)
                self._may_be_killed = False
            self._process.join(END_SECONDS)
        self._connection.close()
        exit_code = self._process.exitcode
        if exit_code is not None:
            self._process.close()
        self.is_ended = True
        return exit_code

    # From any thread

    def kill(self) -> None:
        """Kill the process and everything its handlers started, without waiting."""
        with self._lock:
            self._kill()

    def kill_if_running(self, work: object) -> None:
        """Kill the process if it is still running this work."""
        with self._lock:
            if self._work is work:
                self._kill()

    def forget(self) -> None:
        """Close the pipe in a fork of the worker, because the process watches for its end."""
        self._connection.close()

    def _kill(self) -> None:
        if self._may_be_killed:
            self.was_killed = True
            _kill_group(self._process)


def _start(process: SpawnProcess) -> None:
    """Start the process with SIGINT and SIGTERM blocked until it has installed its handlers."""
    resource_tracker.ensure_running()  # its first start unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, process_main.IGNORED_SIGNALS)
    try:
        with _reaping:
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill_group(process: SpawnProcess) -> None:
    """Kill the process and its group, unless multiprocessing has already reaped it."""
    popen = getattr(process, "_popen", None)
    if process.pid is None or getattr(popen, "returncode", None) is not None:
        return
    # macOS rejects the signal if only the ended leader is left in the group.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # for a process that was just started and does not lead a group yet


def describe_exit(exit_code: int | None) -> str:
    """Return a description of an exit code."""
    if exit_code is None:
        return f"still running {END_SECONDS:g} s after it was killed"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {-exit_code} ({signal.Signals(-exit_code).name})"
    except ValueError:
        return f"signal {-exit_code}"
