"""The command action: `--exec 'command'` runs a shell command for each job.

The command receives the body on stdin and the job's other properties in its environment. Its exit
code decides the outcome:

======================  =====================================================================
0                       the job is finished
BURY_EXIT_CODE (100)    the job is buried, with the end of the command's stderr as the reason
any other, or a signal  the job is retried after its backoff, with the end of stderr as the error
======================  =====================================================================

qmail has used exit code 100 for permanent delivery failures since 1996. The code is otherwise
unused: programs use small numbers, sysexits.h uses 64 to 78, the shell 126 to 165, and ssh 255.
"""

import json
import os
import signal
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from rabbitdelay.actions.command.interruption import deferred_signals
from rabbitdelay.actions.command.pipes import StderrRelay, write_payload
from rabbitdelay.actions.command.process_group import ProcessGroup
from rabbitdelay.actions.job_facts import headers_as_json, iso_time
from rabbitdelay.engine.settle.leased_job import LeasedJob
from rabbitdelay.errors import ActionFailed, Bury, InvalidConfiguration, LeaseLost

BURY_EXIT_CODE = 100
SHELL = "/bin/sh"
VARIABLE_PREFIX = "RABBITDELAY_JOB_"
MAX_TAIL = 500
_DRAIN_SECONDS = 1.0
_SIGNAL_EXIT_CODE = 128
"""Offset of the signal number in the exit code of a shell whose command died from a signal."""
_LOST = "the job's ttr or its connection ended"
_STOPPED = "the consumer was stopped"


class Command:
    """Runs a shell command for each job, on the calling thread."""

    def __init__(self, command: str, *, shell: str = SHELL) -> None:
        if not command.strip() or "\x00" in command:
            raise InvalidConfiguration(
                f"{command!r} is not a command: it must not be empty or contain a NUL character"
            )
        if not os.access(shell, os.X_OK) or Path(shell).is_dir():
            raise InvalidConfiguration(
                f"cannot run commands: the shell {shell} does not exist or is not executable"
            )
        self._arguments = [shell, "-c", command]
        self._lock = threading.Lock()
        self._running: set[ProcessGroup] = set()
        self._is_stopped = False

    def __call__(self, job: LeasedJob) -> None:
        """Run the command; raise `Bury`, `ActionFailed` or `LeaseLost` unless it succeeds."""
        with ExitStack() as stack:
            with deferred_signals():
                group = self._start(job)
                stack.callback(self._end, group)
            stderr = _connect(group, job)
            group.wait()
        tail = stderr.tail(MAX_TAIL, wait_seconds=_DRAIN_SECONDS)
        _raise_for_exit(group.exit_code, group.killed_because, tail)

    def kill_all(self) -> None:
        """Kill every running command with its children, and start no further ones."""
        with self._lock:
            self._is_stopped = True
            for group in self._running:
                group.kill(_STOPPED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.kill_all()

    def _start(self, job: LeasedJob) -> ProcessGroup:
        try:
            group = ProcessGroup(self._arguments, _environment(job))
        except OSError as error:
            raise ActionFailed(f"cannot start the command: {error}") from error
        with self._lock:
            self._running.add(group)
            if self._is_stopped:
                group.kill(_STOPPED)
        return group

    def _end(self, group: ProcessGroup) -> None:
        group.end()
        with self._lock:
            self._running.discard(group)


def _connect(group: ProcessGroup, job: LeasedJob) -> StderrRelay:
    job.on_lost(partial(group.kill, _LOST))
    write_payload(group.stdin, job.payload)
    return StderrRelay(group.stderr)


def _environment(job: LeasedJob) -> dict[bytes, bytes]:
    """Return our environment plus the job, in bytes, because the locale may not encode an id."""
    prefix = VARIABLE_PREFIX.encode()
    inherited = {name: value for name, value in os.environb.items() if not name.startswith(prefix)}
    return inherited | {prefix + name.encode(): _bytes(text) for name, text in _facts(job).items()}


def _facts(job: LeasedJob) -> dict[str, str]:
    facts = {
        "ID": job.id,
        "TOPIC": job.topic,
        "ATTEMPT": str(job.attempt),
        "DUE": iso_time(job.due_ms),
        "DUE_MS": str(job.due_ms),
        "TTR_MS": None if job.ttr_ms is None else str(job.ttr_ms),
        "CONTENT_TYPE": job.content_type,
        "CALLBACK": job.callback,
        "HEADERS": json.dumps(headers_as_json(job)) if job.headers else None,
    }
    return {name: text for name, text in facts.items() if text is not None}


def _bytes(text: str) -> bytes:
    return text.replace("\x00", "�").encode(errors="replace")


def _raise_for_exit(code: int, killed_because: str | None, tail: str) -> None:
    if killed_because is not None and code == -signal.SIGKILL:
        error = LeaseLost if killed_because == _LOST else ActionFailed
        raise error(f"the command was killed: {killed_because}")
    if code == BURY_EXIT_CODE:
        raise Bury(tail or f"the command exited with code {code}")
    if code != 0:
        raise ActionFailed(": ".join(filter(None, [f"the command {_ending(code)}", tail])))


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    name = _signal_name(code - _SIGNAL_EXIT_CODE) if code > _SIGNAL_EXIT_CODE else ""
    return f"exited with code {code}" + (f" ({name})" if name.startswith("SIG") else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
