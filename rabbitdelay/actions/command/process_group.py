"""Process groups: run a command and end it together with all its children.

This file owns two rules:

1. A group is signalled only while its leader has not been reaped, because its id cannot be reused
   until then.
2. The command ends when its leader ends. Processes that it left in its group are killed, so that no
   part of one attempt runs alongside the next. A program that must outlive the job leaves the group
   (`setsid`).
"""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO


class ProcessGroup:
    """A command that runs as the leader of a process group, in a session of its own.

    Ctrl-C on our terminal does not reach the command, because the consumer decides when a job ends.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[bytes, bytes]) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._lock = threading.Lock()
        self._is_reaped = False
        self.killed_because: str | None = None
        """Reason why `kill` killed the group; None if it did not."""

    @property
    def stdin(self) -> IO[bytes]:
        """Pipe to the command's stdin."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stderr(self) -> IO[bytes]:
        """Pipe from the command's stderr."""
        assert self._process.stderr is not None
        return self._process.stderr

    def kill(self, reason: str) -> None:
        """Kill the whole group, from any thread. Has no effect after the group has ended."""
        with self._lock:
            if not self._is_reaped:
                self.killed_because = self.killed_because or reason
                self._kill()

    def wait(self) -> None:
        """Wait until the leader has ended."""
        _wait_unreaped(self._process)

    def end(self) -> None:
        """Kill what is left of the group and reap the leader."""
        with self._lock:
            self._kill()
            self._process.wait()
            self._is_reaped = True

    @property
    def exit_code(self) -> int:
        """Exit code of the leader, or the negative number of the signal that ended it."""
        return self._process.returncode

    def _kill(self) -> None:
        # macOS rejects the signal if only the ended leader is left in the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _wait_unreaped(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended, but leave it as a zombie so that its pid is not reused."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:  # macOS before Python 3.13
        process.wait()
