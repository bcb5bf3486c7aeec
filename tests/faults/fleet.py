"""The processes of the load: started, watched, killed and replaced."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.programs.script import ROOT

STOP_SECONDS = 90.0
REFUSED_EXIT = 77
"""Exit code of a worker that started while the permissions of its user were revoked.

Such a worker ends with an error, as an operator expects; a running one continues.
"""
STARTING_SECONDS = 30.0
FAKETIME_LIBRARIES = tuple(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

RIGHT_CLOCK = "+0\n"


@dataclass
class Member:
    """One process of the load, and its successors under the same name."""

    module: str
    arguments: tuple[str, ...]
    folder: Path
    name: str
    clock: Path | None = None
    """The file that sets the offset of its wall clock, if libfaketime is installed."""
    process: subprocess.Popen[bytes] | None = None
    unexpected_ends: list[int] = field(default_factory=list)
    """Exit codes of processes that ended unasked, or uncleanly when asked to."""
    _starts: int = 0
    _started_at: float = 0.0
    _told_at: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether its process is running."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process, or its successor."""
        self._starts += 1
        self._started_at = time.monotonic()
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, self._own_name(), *self.arguments],
                cwd=ROOT,
                env=os.environ | self._clock_variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the run, which stops its processes
            )

    def replace_ended(self) -> None:
        """Start a successor if the process has ended by itself."""
        if self.process is not None and (code := self.process.poll()) is not None:
            if code != REFUSED_EXIT:
                self.unexpected_ends.append(code)
            self.start()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def tell_to_stop(self) -> None:
        """Send the process SIGTERM."""
        self._told_at = time.monotonic()
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def wait(self, deadline: float) -> None:
        """Wait for the process to exit with code 0, and kill it at the deadline."""
        if self.process is not None:
            try:
                code = self.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                code = -signal.SIGKILL
            if code and not (code == -signal.SIGTERM and self._is_starting):
                self.unexpected_ends.append(code)
            self.kill()

    @property
    def _is_starting(self) -> bool:
        """Whether its signal handler may not be installed yet; valid only after `tell_to_stop`."""
        return self._told_at - self._started_at < STARTING_SECONDS

    def _own_name(self) -> str:
        return f"{self.name}.{self._starts}"

    def _clock_variables(self) -> dict[str, str]:
        if self.clock is None:
            return {}
        self.clock.write_text(RIGHT_CLOCK)
        return {
            "LD_PRELOAD": str(FAKETIME_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_CACHE_DURATION": "1",  # seconds between two reads of that file
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


class Fleet:
    """All members; none of them outlives the block."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.ended: list[Member] = []
        """The members that were told to stop."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for member in (*self.members, *self.ended):
            member.kill()

    def of(self, module: str) -> list[Member]:
        """Return the members that run this module."""
        return [member for member in self.members if member.module == module]

    def replace_ended(self) -> None:
        """Start successors of members that have ended by themselves."""
        for member in self.members:
            member.replace_ended()

    def stop(self, module: str) -> None:
        """Stop the members that run this module, all at once, and wait for them."""
        members = self.of(module)
        for member in members:
            member.tell_to_stop()
        deadline = time.monotonic() + STOP_SECONDS
        for member in members:
            member.wait(deadline)
        self.ended += members
        self.members = [member for member in self.members if member not in members]
