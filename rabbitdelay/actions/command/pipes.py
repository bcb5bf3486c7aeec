"""The pipes of a command: its input is fed, its errors are passed on and their end is kept."""

import os
import sys
import threading
from contextlib import suppress
from typing import IO

_READ_BYTES = 65_536
_KEPT_BYTES = 4_000


def feed(pipe: IO[bytes], payload: bytes) -> None:
    """Write the payload and close, on a thread of its own: the command may read late or never."""
    threading.Thread(target=_feed, args=(pipe, payload), daemon=True).start()


class PassedOn:
    """What a command writes to its stderr, passed on to ours as it comes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._tail = b""
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def tail(self, most: int, *, wait_seconds: float) -> str:
        """Return the last characters, of all that is written until the pipe ends or the wait.

        It ends with the command, unless a program that left the command's group has it too.
        """
        self._thread.join(wait_seconds)
        text = self._tail.decode(errors="replace").strip()
        return text if len(text) <= most else f"…{text[1 - most :]}"

    def _pass_on(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), _READ_BYTES):
                self._tail = (self._tail + chunk)[-_KEPT_BYTES:]
                _write_to_stderr(chunk)


def _feed(pipe: IO[bytes], payload: bytes) -> None:
    rest = memoryview(payload)
    with suppress(BrokenPipeError), pipe:  # it has ended, or does not want to read
        while rest:
            rest = rest[os.write(pipe.fileno(), rest) :]


def _write_to_stderr(chunk: bytes) -> None:
    """Show it, if anybody can see it: a command must not fail because our terminal is gone."""
    stream = getattr(sys.stderr, "buffer", None)
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.write(chunk)
            stream.flush()
