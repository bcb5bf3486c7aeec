"""Pipes whose reader has gone, as in `rabbitdelay stats | head -1`."""

import errno
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

STDOUT, STDERR = 1, 2


class NoReader(Exception):
    """The reader of the output has closed its pipe. Not an OSError, which click would handle."""


class PipeConsole(Console):
    """A console that raises BrokenPipeError, where rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error that rich is handling."""
        raise  # noqa: PLE0704 - rich calls this in its `except`


@contextmanager
def raising_no_reader() -> Iterator[None]:
    """Raise NoReader for a failed write to stdout or stderr, but not for one to a socket."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE and (_has_no_reader(STDOUT) or _has_no_reader(STDERR)):
            raise NoReader from error
        raise


@contextmanager
def watching_stdout(gone: Callable[[], None]) -> Iterator[None]:
    """Call `gone`, in a thread, when the reader of stdout closes its pipe during the block."""
    if not _is_pipe(STDOUT):
        yield
        return
    waking, wake = os.pipe()
    watcher = threading.Thread(target=_watch, args=(waking, gone), name="reader-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.close(wake)
        watcher.join()
        os.close(waking)


def discard_output() -> None:
    """Discard what is buffered, which Python would otherwise fail to write again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # it was closed before the start
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _watch(waking: int, gone: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(STDOUT, 0)  # errors are reported unasked
    poll.register(waking, 0)
    if any(descriptor == STDOUT for descriptor, _ in poll.poll()):
        gone()


def _has_no_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _is_pipe(descriptor: int) -> bool:
    with suppress(OSError):
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    return False
