"""Process groups: a command with all its children, which end together.

1. A group is signalled only while its leader is not reaped: until then its number is nobody else's.
2. When the leader has ended, so has the command: what it left running in its group is killed, so
   that no piece of one attempt runs beside the next. A program that is to outlive the job leaves
   the group (`setsid`).
"""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO


class ProcessGroup:
    """A command that was started as the leader of a process group, in a session of its own.

    Ctrl-C on our terminal does not reach it: it is for us to say when a job ends.
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
        """Why it was killed from here, if it was."""

    @property
    def stdin(self) -> IO[bytes]:
        """Where its input goes."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stderr(self) -> IO[bytes]:
        """Where its errors come from."""
        assert self._process.stderr is not None
        return self._process.stderr

    def kill(self, reason: str) -> None:
        """Kill all of it, from any thread; nothing happens when it has ended."""
        with self._lock:
            if not self._is_reaped:
                self.killed_because = self.killed_because or reason
                self._kill()

    def wait(self) -> None:
        """Wait until the leader has ended."""
        _wait_unreaped(self._process)

    def end(self) -> None:
        """Kill what is left, and learn how the leader ended."""
        with self._lock:
            self._kill()
            self._process.wait()
            self._is_reaped = True

    @property
    def exit_code(self) -> int:
        """The ended leader's exit code, or the signal that ended it below 0."""
        return self._process.returncode

    def _kill(self) -> None:
        # macOS refuses the signal when only the ended leader is left in the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _wait_unreaped(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended, and leave it a zombie, which keeps its number."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:  # macOS before Python 3.13
        process.wait()
