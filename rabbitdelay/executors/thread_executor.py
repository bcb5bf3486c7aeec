"""Run handlers in a pool of threads, or in processes that these threads control."""

import threading
from collections.abc import Iterable
from typing import Literal

from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.engine.background import in_background
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Awaited, Flow, Wait
from rabbitdelay.engine.transport import Then, nothing
from rabbitdelay.engine.work.run import EndRun, Run
from rabbitdelay.engine.work.runner import Hooks, Runner
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.executors.blocking import Await, drive
from rabbitdelay.executors.invoke import LocalCaller
from rabbitdelay.executors.processes.process_executor import ProcessCaller
from rabbitdelay.executors.reserved_job import reserved_job
from rabbitdelay.executors.thread_pool import Pool

PoolKind = Literal["thread", "process"]


class ThreadExecutor:
    """Runs handlers on threads."""

    def __init__(
        self,
        consumer: Consumer,
        hooks: Hooks,
        caller: LocalCaller | ProcessCaller,
        size: int,
        await_: Await,
    ) -> None:
        self._pool = Pool(size, "rabbitdelay-handler")
        self._caller = caller
        self._await = await_
        self._waiter = consumer.settlement.waiter
        self._runner = Runner(consumer.settlement, hooks, reserved_job, caller)

    @property
    def lost(self) -> int:
        """Number of threads still running a handler whose job's lease is lost."""
        return self._pool.lost

    def start(self, run: Run, end: EndRun) -> None:
        """Run a handler as soon as a thread is free."""

        def work() -> None:
            run.worker = threading.current_thread()
            drive(self._runner.work(run, end), self._waiter, self._await)

        self._pool.submit(work)

    def abandon(self, run: Run, told: Then = nothing) -> None:
        """Abandon the thread of a run, and call the timeout hooks on another thread."""
        ttr_seconds = run.lease.ttr_seconds
        if isinstance(run.worker, threading.Thread) and not run.is_through:
            self._pool.abandon(run.worker)  # else the thread may already run another job
        timed_out = self._runner.timed_out(run, ttr_seconds)

        def tell() -> None:
            run.hook_worker = threading.current_thread()
            try:
                drive(timed_out, self._waiter, self._await)
            finally:
                told()

        self._pool.submit(tell)

    @property
    def has_backlog(self) -> bool:
        """Whether work is waiting for a thread."""
        return self._pool.has_backlog

    def nudge(self) -> None:
        """Wake another thread for work that has been waiting for a while."""
        self._pool.nudge()

    def close(self) -> Flow[None]:
        """End every thread after its current work, and end the handler processes."""
        self._pool.close()
        yield Wait(in_background(self._caller.close), awaited=Awaited.MACHINE)


def check_pool(pool: PoolKind) -> PoolKind:
    """Return the kind of pool; raise InvalidConfiguration if it is unknown."""
    if pool not in ("thread", "process"):
        raise InvalidConfiguration(f"pool must be 'thread' or 'process', not {pool!r}")
    return pool


def new_caller(kind: PoolKind, handlers: Iterable[Handler]) -> LocalCaller | ProcessCaller:
    """Return a caller of this kind; for processes, the first one is started."""
    return LocalCaller() if kind == "thread" else ProcessCaller.started(handlers)
