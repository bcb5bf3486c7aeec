"""The main loop of a handler process: run one call after another until the worker closes the pipe.

This file owns three rules:

1. The process leads its own session, so killing its group ends everything that its handlers
   started. A program that must outlive them leaves the group (`setsid`).
2. The process never outlives its worker. A thread reads the pipe at all times, and at its end kills
   the group if a handler is running. (The kernel's parent-death signal is unsuitable, because it is
   sent when the *thread* that started the process ends.)
3. SIGINT and SIGTERM are ignored. They arrive if they are sent to the whole terminal or container,
   and the worker then grants its handlers the grace period.

The process inherits stdout and stderr but no logging configuration, which is up to the handlers'
modules.
"""

import asyncio
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import current_process
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import Any

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.jobs.states import NEXT, Event, State
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.work.handlers import Function, ParameterBinding, bind
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import LeaseLost
from rabbitdelay.executors.processes.process_messages import (
    HandlerCall,
    HandlerName,
    RaisedError,
    Ready,
    Reply,
    Request,
    ReturnedValue,
)
from rabbitdelay.executors.reserved_job import reserved_job

EXIT_SECONDS = 2.0
"""Seconds that an idle process may take for its atexit functions."""
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that the starting worker blocks until the process has installed its handlers."""


def run(connection: Connection, names: Sequence[HandlerName]) -> None:
    """Run a handler process."""
    _detach(connection)
    pipe = WorkerPipe(connection)
    threading.Thread(target=pipe.read, name="rabbitdelay-pipe", daemon=True).start()
    try:
        handlers = {name.topic: ImportedHandler.find(name) for name in names}
    except Exception:  # noqa: BLE001 - the import of a module may fail in any way
        pipe.send(Ready(traceback.format_exc()))
        return
    pipe.send(Ready())
    with closing(asyncio.Runner()) as runner:
        for call in iter(pipe.calls.get, None):
            outcome = _outcome(handlers[call.job.topic], call, pipe, runner)
            _flush()
            pipe.end(outcome)


def _detach(connection: Connection) -> None:
    os.setsid()
    for number in IGNORED_SIGNALS:
        signal.signal(number, _ignore_signal)
    _unblock_signals()
    # The worker detects the end of this process by the end of the pipe, so no other may inherit it.
    os.set_inheritable(connection.fileno(), False)  # noqa: FBT003 - positional-only
    os.register_at_fork(
        before=_block_signals,
        after_in_parent=_unblock_signals,
        after_in_child=partial(_forked, connection),
    )
    current_process().daemon = False  # daemons cannot use multiprocessing


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing. Unlike SIG_IGN, this is not inherited by programs that handlers start."""


def _block_signals() -> None:
    """Block signals around a fork, until the child has installed its handlers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)


def _forked(connection: Connection) -> None:
    """Restore the default signal handlers in a child that a handler forked."""
    connection.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock_signals()


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _flush() -> None:
    """Flush stdout and stderr before the job is settled, because the process may be killed next."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # missing or closed
            stream.flush()


@dataclass(frozen=True, slots=True)
class ImportedHandler:
    """A handler imported in this process."""

    function: Function
    binding: ParameterBinding
    is_async: bool

    @classmethod
    def find(cls, name: HandlerName) -> "ImportedHandler":
        """Import the handler."""
        function = name.find()
        return cls(function, bind(function), name.is_async)


def _outcome(
    handler: ImportedHandler, call: HandlerCall, pipe: "WorkerPipe", runner: asyncio.Runner
) -> ReturnedValue | RaisedError:
    """Call a handler's function and catch everything it raises, so that the process survives."""
    message = Message(call.job.payload, call.headers)
    lease = Lease(call.job, message, 0, 0, call.received_ms, call.redeliveries, State.RESERVED)
    lease.default_max_attempts = call.default_max_attempts
    try:
        arguments = handler.binding.arguments(reserved_job(lease, RemoteSettlement(pipe, call)))
        value = handler.function(**arguments)
        return ReturnedValue.of(runner.run(value) if handler.is_async else value)
    except BaseException as error:  # noqa: BLE001 - SystemExit in a handler is a failure too
        return RaisedError.of(error)


class WorkerPipe:
    """The pipe to the worker. Any thread may send a request, one at a time."""

    def __init__(self, connection: Connection) -> None:
        self.calls: SimpleQueue[HandlerCall | None] = SimpleQueue()
        """Calls to run; None at the end."""
        self._connection = connection
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        self._lock = threading.Lock()
        self._current: HandlerCall | None = None

    def read(self) -> None:
        """Read messages until the worker closes the pipe or ends; runs on its own thread."""
        try:
            while True:
                self._dispatch(self._connection.recv())
        except (EOFError, OSError):
            self._on_pipe_closed()

    def _dispatch(self, message: HandlerCall | Reply) -> None:
        if isinstance(message, Reply):
            self._replies.put(message)
        else:
            self._current = message
            self.calls.put(message)

    def _on_pipe_closed(self) -> None:
        if self._current is None:
            self.calls.put(None)
            time.sleep(EXIT_SECONDS)
        _kill_group()

    def send(self, message: Ready | ReturnedValue | RaisedError) -> None:
        """Send a message to the worker. If the worker has ended, this process ends soon."""
        with suppress(OSError):
            self._connection.send(message)

    def request(self, call: HandlerCall, request: Request) -> Reply:
        """Send a request concerning a call's job to the worker, and wait for the reply."""
        with self._lock:
            if self._current is not call:
                raise LeaseLost(f"{request.verb}: the handler of job {call.job.id} has ended")
            self._connection.send(request)
            return self._replies.get()

    def end(self, outcome: ReturnedValue | RaisedError) -> None:
        """Send the outcome of the current call, and refuse further requests for it."""
        with self._lock:
            self._current = None
            self.send(outcome)


class RemoteSettlement:
    """A JobSettlement that forwards requests to the worker, which has the job's lease."""

    waiter = None

    def __init__(self, pipe: WorkerPipe, call: HandlerCall) -> None:
        self._pipe = pipe
        self._call = call

    def finish(self, lease: Lease) -> None:
        """Finish the job."""
        self._send(Request("finish"))
        _end(lease, Event.FINISH)

    def touch(self, lease: Lease) -> float:  # noqa: ARG002 - part of JobSettlement
        """Restart the job's ttr; return the new deadline."""
        return time.monotonic() + self._send(Request("touch")).seconds_left

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[None]:
        """Release the job."""
        self._send(Request("release", (delay_ms, why)))
        return _end(lease, Event.RELEASE)

    def hand_back_unchanged(self, lease: Lease) -> Future[None]:
        """Return the job unchanged."""
        self._send(Request("hand_back_unchanged"))
        return _end(lease, Event.HAND_BACK)

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[None]:
        """Bury the job."""
        self._send(Request("bury", (reason, why)))
        return _end(lease, Event.BURY)

    def time_left(self, lease: Lease) -> float:
        """Return the seconds left of the ttr, which only the worker knows, as it may renew it."""
        if lease.is_over:
            return 0.0
        with suppress(LeaseLost):
            return self._send(Request("time_left")).seconds_left
        return 0.0

    def is_deleted(self, lease: Lease) -> bool:  # noqa: ARG002 - part of JobSettlement
        """Whether the job was deleted while it is reserved."""
        with suppress(LeaseLost):
            return self._send(Request("is_deleted")).is_deleted
        return False

    def on_end(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Ignore the callback, because this process is killed when the lease is lost."""

    def _send(self, request: Request) -> Reply:
        reply = self._pipe.request(self._call, request)
        if reply.error is not None:
            raise reply.error
        return reply


def _end(lease: Lease, event: Event) -> Future[Any]:
    """Record here that the worker has settled the job."""
    following = NEXT[State.RESERVED][event]
    assert following is not None
    lease.state, lease.ended_by = following, event
    done: Future[Any] = Future()
    done.set_result(None)
    return done
