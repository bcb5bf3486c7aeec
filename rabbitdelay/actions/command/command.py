"""The command action: `--exec 'command'`, a shell command that is run for each job.

The body is its stdin, the rest is in its environment, and its exit code says what becomes of the
job:

======================  ====================================================================
0                       the job is finished
BURY_EXIT_CODE (100)    it is buried, with the end of the command's stderr as the reason
any other, or a signal  it is tried again after its backoff, with the end of stderr as the error
======================  ====================================================================

100 is what qmail's deliveries have meant by "failed for good" since 1996. It is free otherwise:
small numbers are every program's own, 64 to 78 are sysexits.h, 126 to 165 the shell's, 255 ssh's.
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

from rabbitdelay.actions.command.interruption import deferred
from rabbitdelay.actions.command.pipes import PassedOn, feed
from rabbitdelay.actions.command.process_group import ProcessGroup
from rabbitdelay.actions.job_facts import HeldJob, headers_as_json, moment
from rabbitdelay.errors import ActionFailed, Bury, InvalidConfiguration, LeaseLost

BURY_EXIT_CODE = 100
SHELL = "/bin/sh"
VARIABLE_PREFIX = "RABBITDELAY_JOB_"
MAX_TAIL = 500
_DRAIN_SECONDS = 1.0
_SIGNAL_EXIT_CODE = 128
"""A shell whose command died of a signal ends with this and the signal's number."""
_LOST = "the job's ttr or its connection ended"
_STOPPED = "the consumer was stopped"


class Command:
    """Runs a shell command for each job, on the thread that calls it."""

    def __init__(self, command: str, *, shell: str = SHELL) -> None:
        if not command.strip() or "\x00" in command:
            raise InvalidConfiguration("the command to run is empty or has a NUL character in it")
        if not os.access(shell, os.X_OK) or Path(shell).is_dir():
            raise InvalidConfiguration(f"commands are run by {shell}, which is not there")
        self._arguments = [shell, "-c", command]
        self._lock = threading.Lock()
        self._running: set[ProcessGroup] = set()
        self._is_stopped = False

    def __call__(self, job: HeldJob) -> None:
        """Run it, and raise what its end means for the job."""
        with ExitStack() as stack:
            with deferred():
                group = self._start(job)
                stack.callback(self._end, group)
            errors = _attend(group, job)
            group.wait()
        tail = errors.tail(MAX_TAIL, wait_seconds=_DRAIN_SECONDS)
        _judge(group.exit_code, group.killed_because, tail)

    def kill_all(self) -> None:
        """Kill every command that runs, with its children; none is run from now on."""
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

    def _start(self, job: HeldJob) -> ProcessGroup:
        try:
            group = ProcessGroup(self._arguments, _environment(job))
        except OSError as error:
            raise ActionFailed(f"the command could not be started: {error}") from error
        with self._lock:
            self._running.add(group)
            if self._is_stopped:
                group.kill(_STOPPED)
        return group

    def _end(self, group: ProcessGroup) -> None:
        group.end()
        with self._lock:
            self._running.discard(group)


def _attend(group: ProcessGroup, job: HeldJob) -> PassedOn:
    job.on_lost(partial(group.kill, _LOST))
    feed(group.stdin, job.payload)
    return PassedOn(group.stderr)


def _environment(job: HeldJob) -> dict[bytes, bytes]:
    """Our environment and the job, in bytes: an id is any text, whatever the locale can write."""
    prefix = VARIABLE_PREFIX.encode()
    inherited = {name: value for name, value in os.environb.items() if not name.startswith(prefix)}
    return inherited | {prefix + name.encode(): _bytes(text) for name, text in _facts(job).items()}


def _facts(job: HeldJob) -> dict[str, str]:
    facts = {
        "ID": job.id,
        "TOPIC": job.topic,
        "ATTEMPT": str(job.attempt),
        "DUE": moment(job.due_ms),
        "DUE_MS": str(job.due_ms),
        "TTR_MS": None if job.ttr_ms is None else str(job.ttr_ms),
        "CONTENT_TYPE": job.content_type,
        "CALLBACK": job.callback,
        "HEADERS": json.dumps(headers_as_json(job)) if job.headers else None,
    }
    return {name: text for name, text in facts.items() if text is not None}


def _bytes(text: str) -> bytes:
    return text.replace("\x00", "�").encode(errors="replace")


def _judge(code: int, killed_because: str | None, tail: str) -> None:
    if killed_because is not None and code == -signal.SIGKILL:
        error = LeaseLost if killed_because == _LOST else ActionFailed
        raise error(f"the command was killed: {killed_because}")
    if code == BURY_EXIT_CODE:
        raise Bury(tail or f"the command ended with exit code {code}")
    if code != 0:
        raise ActionFailed(": ".join(filter(None, [f"the command {_ending(code)}", tail])))


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    name = _signal_name(code - _SIGNAL_EXIT_CODE) if code > _SIGNAL_EXIT_CODE else ""
    return f"ended with exit code {code}" + (f" ({name})" if name.startswith("SIG") else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
