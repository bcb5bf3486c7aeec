"""What runs in a handlers' process: one call after the other, until the worker hangs up.

1. It leads a session of its own, so whoever ends it ends all that its handlers have started. A
   program that is to outlive them leaves the group (`setsid`).
2. It never outlives its worker: a thread reads the pipe at all times, and at its end kills the
   group if a handler is at work. (The kernel's parent-death signal will not do: it comes when the
   *thread* ends that started the process.)
3. SIGINT and SIGTERM do nothing here: they reach it when they are sent to everybody, and then the
   worker's grace is for its handlers.

It inherits stdout and stderr, and no configuration of logging: the module of a handler makes that.
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
from rabbitdelay.executors.process_messages import (
    Answer,
    Ask,
    Call,
    HandlerName,
    Raised,
    Ready,
    Returned,
)
from rabbitdelay.executors.reserved_job import reserved_job

EXIT_SECONDS = 2.0
"""How long an idle process may take for its atexit functions."""
SPARED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Blocked by whoever starts the process, until it has seen to them."""


def run(connection: Connection, names: Sequence[HandlerName]) -> None:
    """Be a handlers' process."""
    _stand_alone(connection)
    line = Line(connection)
    threading.Thread(target=line.read, name="rabbitdelay-line", daemon=True).start()
    try:
        handlers = {name.topic: ChildHandler.find(name) for name in names}
    except Exception:  # noqa: BLE001 - the import of a module may fail in any way
        line.tell(Ready(traceback.format_exc()))
        return
    line.tell(Ready())
    with closing(asyncio.Runner()) as runner:
        for call in iter(line.calls.get, None):
            outcome = _outcome(handlers[call.job.topic], call, line, runner)
            _flush()
            line.end(outcome)


def _stand_alone(connection: Connection) -> None:
    os.setsid()
    for number in SPARED_SIGNALS:
        signal.signal(number, _stay)
    _unblock_signals()
    # The worker learns of the end of this process by the end of the pipe: nobody else may hold it.
    os.set_inheritable(connection.fileno(), False)  # noqa: FBT003 - its only way
    os.register_at_fork(
        before=_block_signals,
        after_in_parent=_unblock_signals,
        after_in_child=partial(_forked, connection),
    )
    current_process().daemon = False  # or its handlers could not use multiprocessing


def _stay(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN this is not inherited by the programs that handlers start."""


def _block_signals() -> None:
    """Let a signal wait that comes for a fork before it has seen to it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SPARED_SIGNALS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SPARED_SIGNALS)


def _forked(connection: Connection) -> None:
    """A handler has forked: its child ends by signals like any other."""
    connection.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock_signals()


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _flush() -> None:
    """Write what was printed before the job is settled; it may be the last chance."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()


@dataclass(frozen=True, slots=True)
class ChildHandler:
    """A handler as this process has it."""

    function: Function
    binding: ParameterBinding
    is_async: bool

    @classmethod
    def find(cls, name: HandlerName) -> "ChildHandler":
        """Import it."""
        function = name.find()
        return cls(function, bind(function), name.is_async)


def _outcome(
    handler: ChildHandler, call: Call, line: "Line", runner: asyncio.Runner
) -> Returned | Raised:
    """Call a handler's function; nothing that it raises ends the process."""
    message = Message(call.job.payload, call.headers)
    lease = Lease(call.job, message, 0, 0, call.received_ms, call.redeliveries, State.RESERVED)
    lease.default_max_attempts = call.default_max_attempts
    try:
        arguments = handler.binding.arguments(reserved_job(lease, WorkerHolder(line, call)))
        value = handler.function(**arguments)
        return Returned.of(runner.run(value) if handler.is_async else value)
    except BaseException as error:  # noqa: BLE001 - a handler's SystemExit is its failure too
        return Raised.of(error)


class Line:
    """The pipe to the worker. Any thread may ask, one at a time."""

    def __init__(self, connection: Connection) -> None:
        self.calls: SimpleQueue[Call | None] = SimpleQueue()
        """What is to be called; None at the end."""
        self._connection = connection
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._lock = threading.Lock()
        self._current: Call | None = None

    def read(self) -> None:
        """Read until the worker has hung up or is gone; on a thread of its own."""
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, OSError):
            self._hung_up()

    def _take(self, message: Call | Answer) -> None:
        if isinstance(message, Answer):
            self._answers.put(message)
        else:
            self._current = message
            self.calls.put(message)

    def _hung_up(self) -> None:
        if self._current is None:
            self.calls.put(None)
            time.sleep(EXIT_SECONDS)
        _kill_group()

    def tell(self, message: Ready | Returned | Raised) -> None:
        """Tell the worker something; when it is gone, so is this process, at any moment."""
        with suppress(OSError):
            self._connection.send(message)

    def ask(self, call: Call, ask: Ask) -> Answer:
        """Ask the worker to do something with the job of a call, and wait for its answer."""
        with self._lock:
            if self._current is not call:
                raise LeaseLost(f"{ask.verb}: the handler of job {call.job.id} has ended")
            self._connection.send(ask)
            return self._answers.get()

    def end(self, outcome: Returned | Raised) -> None:
        """The call has ended: nobody may ask anything for it any more."""
        with self._lock:
            self._current = None
            self.tell(outcome)


class WorkerHolder:
    """The Holder of a job whose lease is in the worker: it asks there."""

    def __init__(self, line: Line, call: Call) -> None:
        self._line = line
        self._call = call

    def finish(self, lease: Lease) -> None:
        """End it for good."""
        self._ask(Ask("finish"))
        _end(lease, Event.FINISH)

    def touch(self, lease: Lease) -> float:  # noqa: ARG002 - the Holder's
        """Let its ttr begin again."""
        return time.monotonic() + self._ask(Ask("touch")).seconds_left

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[None]:
        """Give it back."""
        self._ask(Ask("release", (delay_ms, why)))
        return _end(lease, Event.RELEASE)

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[None]:
        """Give it up."""
        self._ask(Ask("bury", (reason, why)))
        return _end(lease, Event.BURY)

    def time_left(self, lease: Lease) -> float:
        """How many seconds it may still be held; asked, for the worker may have renewed it."""
        if lease.is_over:
            return 0.0
        with suppress(LeaseLost):
            return self._ask(Ask("time_left")).seconds_left
        return 0.0

    def is_deleted(self, lease: Lease) -> bool:  # noqa: ARG002 - the Holder's
        """Whether it was deleted while it is held."""
        with suppress(LeaseLost):
            return self._ask(Ask("is_deleted")).is_deleted
        return False

    def on_end(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Nothing is ever called: when the job is taken away, this process is killed."""

    def _ask(self, ask: Ask) -> Answer:
        answer = self._line.ask(self._call, ask)
        if answer.error is not None:
            raise answer.error
        return answer


def _end(lease: Lease, event: Event) -> Future[Any]:
    """Note here that the worker has settled it."""
    following = NEXT[State.RESERVED][event]
    assert following is not None
    lease.state, lease.ended_by = following, event
    done: Future[Any] = Future()
    done.set_result(None)
    return done
