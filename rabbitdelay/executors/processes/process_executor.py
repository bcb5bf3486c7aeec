"""Call handlers in separate processes, which are killed when a job's lease is lost.

There are as many processes as the highest number of handlers that ran at once. A process is reused
for jobs of any topic, and replaced after it has died or been killed.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Self

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.settle.leased_job import JobSettlement
from rabbitdelay.errors import HandlerDied, InvalidConfiguration, LeaseLost, RabbitDelayError
from rabbitdelay.executors.processes import process_main
from rabbitdelay.executors.processes.process_handle import (
    END_SECONDS,
    HandlerProcess,
    describe_exit,
)
from rabbitdelay.executors.processes.process_messages import (
    HandlerCall,
    HandlerName,
    RaisedError,
    Ready,
    Reply,
    Request,
    ReturnedValue,
)
from rabbitdelay.executors.reserved_job import ReservedJob

START_SECONDS = 60.0
"""Seconds that a process may take to import its handlers."""
_AFTERWARDS_SECONDS = 0.1
"""Minimum seconds that a handler may run on after it has settled its job."""


class ProcessCaller:
    """Calls functions in other processes; safe to call from any number of threads."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self._names = [HandlerName.of(handler) for handler in handlers]
        self._changed = threading.Condition()
        self._processes: set[HandlerProcess] = set()
        self._idle: list[HandlerProcess] = []
        self._is_closed = False
        process_lifetime.opened(self)
        # At exit, multiprocessing sends SIGTERM, which the processes ignore, and waits for them.
        atexit.register(self.close)

    @classmethod
    def started(cls, handlers: Iterable[Handler]) -> Self:
        """Return a caller with one process, so that import errors occur before a job is reserved.

        Raises:
            InvalidConfiguration: A handler cannot be imported in another process.
        """
        caller = cls(handlers)
        try:
            caller._give_back(caller._start_process(START_SECONDS, lambda: None))
        except BaseException:
            caller.close()
            raise
        return caller

    def __call__(self, _handler: Handler, job: ReservedJob) -> Any:  # noqa: ANN401 - the handler's value
        """Call the handler and return its value."""
        process = self._acquire(job)
        try:
            outcome = _run_handler(process, job)
        except (EOFError, OSError):
            raise _death(process, job) from None
        finally:
            process.set_work(None)
            self._give_back(process)
        if isinstance(outcome, RaisedError):
            raise outcome.error()
        return outcome.value()

    def close(self, seconds: float = END_SECONDS) -> None:
        """End every process: idle ones cleanly, the others at once."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = self._processes.difference(idle)
        for process in busy:
            process.kill()
        for process in idle:
            process.close_pipe()
        for process in idle:
            self._end(process, process_main.EXIT_SECONDS)
        with self._changed:  # the busy ones are reaped by the threads that use them
            self._changed.wait_for(lambda: not self._processes, seconds)
        process_lifetime.closed(self)
        atexit.unregister(self.close)

    def flush_at_exit(self, seconds: float) -> None:
        """End all processes, because the program exits."""
        self.close(seconds)

    def abandon_in_child(self) -> None:
        """Forget all processes in a forked child, because they belong to the parent."""
        self._changed = threading.Condition()
        for process in self._processes:
            process.forget()
        self._processes, self._idle, self._is_closed = set(), [], True

    # Managing processes

    def _acquire(self, job: ReservedJob) -> HandlerProcess:
        """Return an idle process or a new one. The ttr is renewed while a process starts."""
        while (process := self._pop_idle()) is not None:
            if not process.has_message(0):
                return process
            self._end(process)  # it has died, because an idle process sends nothing
        return self._start_process(job.ttr.total_seconds() / 2, job.touch)

    def _pop_idle(self) -> HandlerProcess | None:
        with self._changed:
            return self._idle.pop() if self._idle else None

    def _give_back(self, process: HandlerProcess) -> None:
        with self._changed:
            is_usable = not (self._is_closed or process.was_killed or process.is_ended)
            if is_usable:
                self._idle.append(process)
        if not is_usable:
            self._end(process)

    def _end(self, process: HandlerProcess, patience_seconds: float = 0.0) -> None:
        if not process.is_ended:
            process.end(patience_seconds)
        with self._changed:
            self._processes.discard(process)
            self._changed.notify_all()

    def _start_process(self, wait_seconds: float, meanwhile: Callable[[], None]) -> HandlerProcess:
        process = HandlerProcess(self._names)
        with self._changed:
            self._processes.add(process)
            if self._is_closed:
                process.kill()
        try:
            _wait_until_ready(process, wait_seconds, meanwhile)
            meanwhile()
        except BaseException:
            process.kill()
            self._end(process)
            raise
        return process


def _wait_until_ready(
    process: HandlerProcess, wait_seconds: float, meanwhile: Callable[[], None]
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not process.has_message(wait_seconds):
        meanwhile()
        if time.monotonic() >= deadline:
            raise HandlerDied(
                f"the handler process was killed because it was not ready after {START_SECONDS:g} "
                "s: find out why importing the handlers' modules takes so long"
            )
    try:
        ready: Ready = process.receive()
    except (EOFError, OSError):
        raise _false_start(process) from None
    if ready.problem is not None:
        raise InvalidConfiguration(
            f"a handler cannot be imported in another process: {ready.problem}"
        )


def _false_start(process: HandlerProcess) -> RabbitDelayError:
    """Return the error for a process that ended before it was ready."""
    how = describe_exit(process.end())
    if process.was_killed:
        return HandlerDied("the handler process was killed during startup: the worker is stopping")
    return InvalidConfiguration(
        f"the handler process ended during startup ({how}): see its stderr. A script that runs a "
        'worker with pool="process" is imported in that process, so it must call run() under '
        '`if __name__ == "__main__":`'
    )


# Calling


def _run_handler(process: HandlerProcess, job: ReservedJob) -> ReturnedValue | RaisedError:
    """Have the process call the handler, and answer its requests concerning the job."""
    lease, settlement = job._lease, job._settlement  # noqa: SLF001 - its parts are sent to another process
    if lease.is_over:
        raise LeaseLost(f"job {job.id} ({job.topic}) was lost before its handler started")
    process.set_work(job)
    job.on_lost(partial(process.kill_if_running, job))
    headers = dict(lease.message.headers)
    numbers = (lease.received_ms, lease.redeliveries, lease.default_max_attempts)
    process.send(HandlerCall(lease.job, headers, *numbers))
    while True:
        if not process.has_message(_patience_seconds(lease)):
            process.kill()
            continue
        message: Request | ReturnedValue | RaisedError = process.receive()
        if not isinstance(message, Request):
            return message
        process.send(_answer(message, lease, settlement))


def _patience_seconds(lease: Lease) -> float | None:
    """Return the seconds left for a handler that has settled its job; None if it has not."""
    if not lease.is_over:
        return None
    return max(_AFTERWARDS_SECONDS, lease.deadline - time.monotonic())


def _answer(request: Request, lease: Lease, settlement: JobSettlement) -> Reply:
    error: Exception | None = None
    try:
        done = getattr(settlement, request.verb)(lease, *request.arguments)
        if isinstance(done, Future):
            done.result()
    except RabbitDelayError as refused:
        error = refused
    return Reply(settlement.time_left(lease), error, settlement.is_deleted(lease))


def _death(process: HandlerProcess, job: ReservedJob) -> RabbitDelayError:
    """Return the error for a process that ended before its handler."""
    how = describe_exit(process.end())
    if process.was_killed:
        return LeaseLost(f"job {job.id} ({job.topic}) was lost: its handler was killed")
    return HandlerDied(f"the handler process died: {how}")
