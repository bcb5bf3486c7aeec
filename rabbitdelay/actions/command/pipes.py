"""The pipes of a command: write the payload to its stdin and relay its stderr."""

import os
import sys
import threading
from contextlib import suppress
from typing import IO

_READ_BYTES = 65_536
_KEPT_BYTES = 4_000


def write_payload(pipe: IO[bytes], payload: bytes) -> None:
    """Write the payload on another thread, because the command may read late or never."""
    threading.Thread(target=_write, args=(pipe, payload), daemon=True).start()


class StderrRelay:
    """Copies a command's stderr to ours as it is written, and keeps the last part."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._tail = b""
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def tail(self, max_length: int, *, wait_seconds: float) -> str:
        """Return the last characters written before the pipe ends or `wait_seconds` have passed.

        The pipe ends with the command, unless a program that left the command's group still has
        the pipe open.
        """
        self._thread.join(wait_seconds)
        text = self._tail.decode(errors="replace").strip()
        return text if len(text) <= max_length else f"…{text[1 - max_length :]}"

    def _copy(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), _READ_BYTES):
                self._tail = (self._tail + chunk)[-_KEPT_BYTES:]
                _write_to_stderr(chunk)


def _write(pipe: IO[bytes], payload: bytes) -> None:
    rest = memoryview(payload)
    with suppress(BrokenPipeError), pipe:  # the command has ended or closed its stdin
        while rest:
            rest = rest[os.write(pipe.fileno(), rest) :]


def _write_to_stderr(chunk: bytes) -> None:
    """Write to our stderr, ignoring errors: a command must not fail because our terminal closed."""
    stream = getattr(sys.stderr, "buffer", None)
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.write(chunk)
            stream.flush()
