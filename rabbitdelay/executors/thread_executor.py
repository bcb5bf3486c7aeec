"""Threads: handlers at work in a pool of threads, or in processes that the threads speak with."""

import threading
from collections.abc import Iterable
from typing import Literal

from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.engine.background import in_background
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.work.run import End, Run
from rabbitdelay.engine.work.runner import Hooks, Runner
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.executors.blocking import Await, drive
from rabbitdelay.executors.invoke import HereCaller
from rabbitdelay.executors.process_executor import ChildCaller
from rabbitdelay.executors.reserved_job import reserved_job
from rabbitdelay.executors.thread_pool import Pool

PoolKind = Literal["thread", "process"]


class ThreadExecutor:
    """Runs handlers on threads."""

    def __init__(
        self,
        consumer: Consumer,
        hooks: Hooks,
        caller: HereCaller | ChildCaller,
        size: int,
        await_: Await,
    ) -> None:
        self._pool = Pool(size, "rabbitdelay-handler")
        self._caller = caller
        self._await = await_
        self._runner = Runner(consumer.holding, hooks, reserved_job, caller)

    @property
    def lost(self) -> int:
        """How many threads still run a handler whose job was taken from it."""
        return self._pool.lost

    def start(self, run: Run, end: End) -> None:
        """Run a handler as soon as a thread is free."""

        def work() -> None:
            run.worker = threading.current_thread()
            drive(self._runner.work(run, end), self._await)

        self._pool.submit(work)

    def let_go(self, run: Run) -> None:
        """Count on its thread no more, and tell the hooks, on another."""
        ttr_seconds = run.lease.ttr_seconds
        if isinstance(run.worker, threading.Thread) and not run.is_through:
            self._pool.let_go(run.worker)  # else it may be at another job by now
        self._pool.submit(lambda: drive(self._runner.timed_out(run, ttr_seconds), self._await))

    @property
    def has_backlog(self) -> bool:
        """Whether something waits for a thread."""
        return self._pool.has_backlog

    def nudge(self) -> None:
        """What waits has waited for a moment."""
        self._pool.nudge()

    def close(self) -> Flow[None]:
        """Let every thread end after what it does now, and end what it speaks with."""
        self._pool.close()
        yield Wait(in_background(self._caller.close))


def check_pool(pool: PoolKind) -> PoolKind:
    """Return the kind of pool, or say that there is none such."""
    if pool not in ("thread", "process"):
        raise InvalidConfiguration(f"pool must be 'thread' or 'process', not {pool!r}")
    return pool


def new_caller(kind: PoolKind, handlers: Iterable[Handler]) -> HereCaller | ChildCaller:
    """Return who calls handlers in threads; the first process is started, if it is to be those."""
    return HereCaller() if kind == "thread" else ChildCaller.started(handlers)
