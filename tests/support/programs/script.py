"""A Python script in a process that the test may signal and kill."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.patience import patience, wait_until

ROOT = Path(__file__).parents[3]


class Process:
    """A Python script in a process of its own. Its output is collected line by line."""

    def __init__(self, script: str, *arguments: str, options: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", *options, "-c", script, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in (
                (self._process.stdout, self.lines),
                (self._process.stderr, self.errors),
            )
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.wait()

    def wait_for(self, line: str, *, count: int = 1, seconds: float = 20.0) -> None:
        """Wait until the process has printed `count` lines that begin with `line`."""
        wait_until(
            lambda: self.count(line) >= count or self._process.poll() is not None,
            seconds=seconds,
            what=lambda: self._end_with_report(line),
        )
        assert self.count(line) >= count, (line, self.lines[-5:], self.errors)

    def wait_for_error(self, text: str) -> None:
        """Wait until a line with this text appears on its standard error."""
        wait_until(
            lambda: any(text in line for line in list(self.errors)),
            what=lambda: self._end_with_report(text),
        )

    def count(self, line: str) -> int:
        """Return the number of lines that begin with `line`."""
        return sum(one.startswith(line) for one in list(self.lines))

    def second_words(self, first: str) -> Counter[str]:
        """Return the second words of the lines with this first word, with their counts."""
        pairs = [one.split() for one in list(self.lines)]
        return Counter(words[1] for words in pairs if words[0] == first)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 20.0) -> int:
        """Wait `patience(seconds)` for the process to end; return its exit code."""
        code = self._process.wait(patience(seconds))
        for reader in self._readers:
            reader.join(patience(10))
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def _end_with_report(self, expected: str) -> str:
        """End the process; return its last lines, and where each of its threads was."""
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGABRT)
        self.wait()
        errors = "\n".join(self.errors)
        return (
            f"{expected!r}: the last lines were {self.lines[-5:]}, and on standard error\n{errors}"
        )

    @staticmethod
    def _read(pipe: Any, into: list[str]) -> None:  # noqa: ANN401 - a text stream
        into.extend(iter_lines(pipe))


def iter_lines(pipe: Any) -> Iterator[str]:  # noqa: ANN401 - a text stream
    """Yield the lines of a pipe as they arrive."""
    for line in pipe:
        yield line.rstrip("\n")
