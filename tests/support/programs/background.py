"""A program that runs beside a test, and does not outlive a failure of the test."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def background(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Wait for a program at the end of the block; kill it if the block raises.

    Popen's own block would wait for it even then. A program that writes to a terminal which is no
    longer read never ends, and pytest's timeout, which interrupts a test once, cannot end the wait.
    """
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
