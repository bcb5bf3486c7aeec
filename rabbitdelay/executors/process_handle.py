"""A child: one process in which handlers run, as its worker sees it.

1. One thread at a time speaks with a child, and that one ends it. Others may only kill it.
2. It is killed with its whole group, and never after it was waited for: until then its number is
   nobody else's.

Children are spawned: a fork of a process with threads copies locks that nobody will ever release.
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

from rabbitdelay.executors import process_main
from rabbitdelay.executors.process_messages import Answer, Call, HandlerName

DEATH_SECONDS = 1.0
"""How long a child that has hung up may take to end by itself."""
END_SECONDS = 5.0
"""How long a killed process is waited for; longer only when the kernel holds it."""

_spawn = multiprocessing.get_context("spawn")
_reaping = threading.Lock()
"""multiprocessing waits for children that have ended whenever it starts another: the exit code is
lost on whoever waits for one at the same moment."""


class Child:
    """A process that is starting, at work, idle or ended."""

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

    # For the thread that has it

    def send(self, message: Call | Answer) -> None:
        """Tell it something; OSError when it has ended."""
        self._connection.send(message)

    def says_something(self, seconds: float | None) -> bool:
        """Whether it says something within this time, or hangs up."""
        return self._connection.poll(seconds)

    def receive(self) -> Any:  # noqa: ANN401 - any message
        """What it says; EOFError or OSError when it has ended."""
        return self._connection.recv()

    def set_work(self, work: object) -> None:
        """Let it be killed by who names this work, and by nobody who still names another."""
        with self._lock:
            self._work = work

    def hang_up(self) -> None:
        """Let it end by itself, which it does when it is idle."""
        self._connection.close()

    def end(self, patience_seconds: float = DEATH_SECONDS) -> int | None:
        """Wait for its end, kill what is left of it, and return its exit code."""
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
        """Kill it, with all that its handlers have started; without waiting."""
        with self._lock:
            self._kill()

    def kill_at(self, work: object) -> None:
        """Kill it if this is still what it works on."""
        with self._lock:
            if self._work is work:
                self._kill()

    def forget(self) -> None:
        """In a fork of the worker: let go of the pipe, which the child watches."""
        self._connection.close()

    def _kill(self) -> None:
        if self._may_be_killed:
            self.was_killed = True
            _kill_group(self._process)


def _start(process: SpawnProcess) -> None:
    """Start it with Ctrl-C and the like blocked, until it has seen to them."""
    resource_tracker.ensure_running()  # which unblocks signals when it is first started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, process_main.SPARED_SIGNALS)
    try:
        with _reaping:
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill_group(process: SpawnProcess) -> None:
    """Kill it with its group, unless multiprocessing has waited for it while it started another."""
    popen = getattr(process, "_popen", None)
    if process.pid is None or getattr(popen, "returncode", None) is not None:
        return
    # macOS refuses the signal when only the ended leader is left in the group.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # for one that has just been started, and leads no group yet


def how_it_ended(exit_code: int | None) -> str:
    """An exit code as people read it."""
    if exit_code is None:
        return f"it has not ended {END_SECONDS:g} s after it was killed"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {-exit_code} ({signal.Signals(-exit_code).name})"
    except ValueError:
        return f"signal {-exit_code}"
