"""Children: calls handlers in processes of their own, which are killed when a job is taken away.

There are as many as handlers that were ever at work at once: each is used again for the next job
of any topic, and replaced when it has died or was killed.
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
from rabbitdelay.engine.consume.held_job import Holder
from rabbitdelay.errors import HandlerDied, InvalidConfiguration, LeaseLost, RabbitDelayError
from rabbitdelay.executors import process_main
from rabbitdelay.executors.process_handle import END_SECONDS, Child, how_it_ended
from rabbitdelay.executors.process_messages import (
    Answer,
    Ask,
    Call,
    HandlerName,
    Raised,
    Ready,
    Returned,
)
from rabbitdelay.executors.reserved_job import ReservedJob

START_SECONDS = 60.0
"""How long a child may take to import its handlers."""
_AFTERWARDS_SECONDS = 0.1


class ChildCaller:
    """Calls functions in other processes; any number of threads may call."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self._names = [HandlerName.of(handler) for handler in handlers]
        self._changed = threading.Condition()
        self._children: set[Child] = set()
        self._idle: list[Child] = []
        self._is_closed = False
        process_lifetime.opened(self)
        # multiprocessing ends its children by SIGTERM, for which they do not end, and waits.
        atexit.register(self.close)

    @classmethod
    def started(cls, handlers: Iterable[Handler]) -> Self:
        """Return one with a first child: what cannot be imported is known before a job is taken.

        Raises:
            InvalidConfiguration: A handler cannot be imported in another process.
        """
        caller = cls(handlers)
        try:
            caller._put_back(caller._start_child(START_SECONDS, lambda: None))
        except BaseException:
            caller.close()
            raise
        return caller

    def __call__(self, _handler: Handler, job: ReservedJob) -> Any:  # noqa: ANN401 - what it returns
        """Call it, and return what it returns."""
        child = self._take(job)
        try:
            outcome = _converse(child, job)
        except (EOFError, OSError):
            raise _death(child, job) from None
        finally:
            child.set_work(None)
            self._put_back(child)
        if isinstance(outcome, Raised):
            raise outcome.error()
        return outcome.value()

    def close(self, seconds: float = END_SECONDS) -> None:
        """End every child: the idle ones in good order, the others at once."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = self._children.difference(idle)
        for child in busy:
            child.kill()
        for child in idle:
            child.hang_up()
        for child in idle:
            self._end(child, process_main.EXIT_SECONDS)
        with self._changed:  # the threads that have the others end them
            self._changed.wait_for(lambda: not self._children, seconds)
        process_lifetime.closed(self)
        atexit.unregister(self.close)

    def flush_at_exit(self, seconds: float) -> None:
        """The program ends: so do they."""
        self.close(seconds)

    def abandon_in_child(self) -> None:
        """This is a forked child: forget the parent's children."""
        self._changed = threading.Condition()
        for child in self._children:
            child.forget()
        self._children, self._idle, self._is_closed = set(), [], True

    # Having children

    def _take(self, job: ReservedJob) -> Child:
        """An idle child, or a new one. The ttr is for the handler: while one starts it waits."""
        while (child := self._pop_idle()) is not None:
            if not child.says_something(0):
                return child
            self._end(child)  # it has died: an idle one has nothing to say
        return self._start_child(job.ttr.total_seconds() / 2, job.touch)

    def _pop_idle(self) -> Child | None:
        with self._changed:
            return self._idle.pop() if self._idle else None

    def _put_back(self, child: Child) -> None:
        with self._changed:
            is_usable = not (self._is_closed or child.was_killed or child.is_ended)
            if is_usable:
                self._idle.append(child)
        if not is_usable:
            self._end(child)

    def _end(self, child: Child, patience_seconds: float = 0.0) -> None:
        if not child.is_ended:
            child.end(patience_seconds)
        with self._changed:
            self._children.discard(child)
            self._changed.notify_all()

    def _start_child(self, pause_seconds: float, meanwhile: Callable[[], None]) -> Child:
        child = Child(self._names)
        with self._changed:
            self._children.add(child)
            if self._is_closed:
                child.kill()
        try:
            _wait_until_ready(child, pause_seconds, meanwhile)
            meanwhile()
        except BaseException:
            child.kill()
            self._end(child)
            raise
        return child


def _wait_until_ready(child: Child, pause_seconds: float, meanwhile: Callable[[], None]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not child.says_something(pause_seconds):
        meanwhile()
        if time.monotonic() >= deadline:
            raise HandlerDied(
                f"the handlers' process was not ready after {START_SECONDS:g} s, and was killed: "
                "see what the import of its modules waits for"
            )
    try:
        ready: Ready = child.receive()
    except (EOFError, OSError):
        raise _false_start(child) from None
    if ready.problem is not None:
        raise InvalidConfiguration(
            f"a handler cannot be imported in another process: {ready.problem}"
        )


def _false_start(child: Child) -> RabbitDelayError:
    """What to say of a child that has hung up before it was ready."""
    how = how_it_ended(child.end())
    if child.was_killed:
        return HandlerDied("the handlers' process was killed while it started: the worker stops")
    return InvalidConfiguration(
        f"the handlers' process ended while it started ({how}): its stderr tells why. "
        'A script that runs a worker with pool="process" is imported there: '
        'it must call run() under `if __name__ == "__main__":`'
    )


# Calling


def _converse(child: Child, job: ReservedJob) -> Returned | Raised:
    """Have the handler called, and do for it what it asks for its job."""
    lease, holder = job._lease, job._holder  # noqa: SLF001 - its own parts go to another process
    if lease.is_over:
        raise LeaseLost(f"job {job.id} ({job.topic}) was taken away before its handler began")
    child.set_work(job)
    job.on_lost(partial(child.kill_at, job))
    headers = dict(lease.message.headers)
    numbers = (lease.received_ms, lease.redeliveries, lease.default_max_attempts)
    child.send(Call(lease.job, headers, *numbers))
    while True:
        if not child.says_something(_patience_seconds(lease)):
            child.kill()
            continue
        message: Ask | Returned | Raised = child.receive()
        if not isinstance(message, Ask):
            return message
        child.send(_answer(message, lease, holder))


def _patience_seconds(lease: Lease) -> float | None:
    """How long the handler may go on: until it is killed, or its deadline if it has settled it."""
    if not lease.is_over:
        return None
    return max(_AFTERWARDS_SECONDS, lease.deadline - time.monotonic())


def _answer(ask: Ask, lease: Lease, holder: Holder) -> Answer:
    error: Exception | None = None
    try:
        done = getattr(holder, ask.verb)(lease, *ask.arguments)
        if isinstance(done, Future):
            done.result()
    except RabbitDelayError as refused:
        error = refused
    return Answer(holder.time_left(lease), error, holder.is_deleted(lease))


def _death(child: Child, job: ReservedJob) -> RabbitDelayError:
    """What to say of a child that has hung up before its handler ended."""
    how = how_it_ended(child.end())
    if child.was_killed:
        return LeaseLost(f"job {job.id} ({job.topic}) was taken away: its handler was killed")
    return HandlerDied(f"the handler's process died: {how}")
