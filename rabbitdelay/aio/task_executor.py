"""Run coroutine handlers as tasks on the event loop, and plain functions on threads."""

import asyncio
import threading
from functools import partial
from typing import Any

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.aio.reserved_job import ReservedJob, reserved_job
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Call, Flow
from rabbitdelay.engine.transport import Then, nothing
from rabbitdelay.engine.work.run import EndRun, Run
from rabbitdelay.engine.work.runner import Hooks, Runner
from rabbitdelay.executors.thread_executor import ThreadExecutor

CANCEL_SECONDS = 5.0
"""Seconds that handlers cancelled when the worker stops may take to clean up."""
Task = asyncio.Task[None]


class TaskExecutor:
    """Runs coroutine handlers as tasks, which are cancelled when their lease is lost."""

    def __init__(self, consumer: Consumer, hooks: Hooks, threads: ThreadExecutor | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._threads = threads
        self._settlement = consumer.settlement
        self._waiter = consumer.settlement.waiter
        self._runner = Runner(consumer.settlement, hooks, reserved_job, _call)
        self._tasks: set[Task] = set()
        self._lost: set[Task] = set()

    @property
    def lost(self) -> int:
        """Number of tasks and threads still running a handler whose job's lease is lost."""
        return len(self._lost) + (self._threads.lost if self._threads is not None else 0)

    def start(self, run: Run, end: EndRun) -> None:
        """Run a handler, as a task or as soon as a thread is free. Safe from any thread."""
        if not run.handler.is_async and self._threads is not None:
            self._threads.start(run, end)
        elif threading.get_ident() == self._thread:
            self._start(run, end)
        else:
            self._loop.call_soon_threadsafe(self._start, run, end)

    def abandon(self, run: Run, told: Then = nothing) -> None:
        """Abandon the task or thread of a run, and call the timeout hooks."""
        if not run.handler.is_async and self._threads is not None:
            self._threads.abandon(run, told)
            return
        if isinstance(run.worker, asyncio.Task) and not run.worker.done():
            self._lost.add(run.worker)
        hooks = self._run_task(self._drive(self._runner.timed_out(run, run.lease.ttr_seconds)))
        hooks.add_done_callback(lambda _: told())
        run.hook_worker = hooks

    @property
    def has_backlog(self) -> bool:
        """Whether work is waiting for a thread."""
        return self._threads is not None and self._threads.has_backlog

    def nudge(self) -> None:
        """Wake another thread for work that has been waiting for a while."""
        if self._threads is not None:
            self._threads.nudge()

    def close(self) -> Flow[None]:
        """Cancel the running tasks and let them clean up, then close the threads."""
        for task in self._tasks:
            if not task.cancelling():  # a second cancel would interrupt its cleanup
                task.cancel()
        if self._tasks:
            yield Call(partial(asyncio.wait, set(self._tasks), timeout=CANCEL_SECONDS))
        if self._threads is not None:
            yield from self._threads.close()

    def _start(self, run: Run, end: EndRun) -> None:
        run.worker = self._run_task(self._work(run, end))

    async def _work(self, run: Run, end: EndRun) -> None:
        """Run a handler. Cancelling starts here, as a task cancelled earlier reports nothing."""
        task = asyncio.current_task()
        assert task is not None
        self._settlement.on_end(run.lease, partial(self._cancel, task))
        await self._drive(self._runner.work(run, end))

    async def _drive(self, flow: Flow[None]) -> None:
        await drive(flow, self._waiter)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task whose lease is lost. Safe from any thread."""
        if threading.get_ident() == self._thread:
            task.cancel()
        else:
            self._loop.call_soon_threadsafe(task.cancel)

    def _run_task(self, coroutine: Any) -> Task:  # noqa: ANN401 - a coroutine
        task: Task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: Task) -> None:
        self._tasks.discard(task)
        self._lost.discard(task)


def _call(handler: Handler, job: ReservedJob) -> Any:  # noqa: ANN401 - a coroutine
    return handler.function(**handler.binding.arguments(job))
