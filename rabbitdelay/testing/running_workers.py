"""The workers that run on a broker in memory, and what their handlers raise."""

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from rabbitdelay import Worker, aio
from rabbitdelay.core.work.outcome import Outcome
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.errors import Bury, InvalidConfiguration, Retry
from rabbitdelay.models import Job
from rabbitdelay.testing.attachment import AnyWorker
from rabbitdelay.testing.driver.watched_executor import WatchedExecutor
from rabbitdelay.testing.time.timeline import Timeline


@dataclass(slots=True, eq=False)
class Running:
    """A worker that runs in a thread or as a task."""

    worker: AnyWorker
    ended: Future[None] = field(default_factory=Future)
    """Done when `run` has returned; it has the error that `run` raised."""
    task: "asyncio.Task[None] | None" = None


class RunningWorkers:
    """Runs workers. The timeline knows when they and their handlers do something."""

    def __init__(self, timeline: Timeline, *, duplicates: float) -> None:
        self._timeline = timeline
        self._duplicates = duplicates
        self._random = random.Random(0)  # noqa: S311 - which jobs run twice is no secret
        self._running: list[Running] = []
        self._executors: list[WatchedExecutor] = []
        self._errors: list[BaseException] = []

    def watched(self, executor: Executor) -> Executor:
        """Return an executor whose handlers are known to run."""
        watched = WatchedExecutor(self._timeline, executor, self._is_run_twice)
        self._executors.append(watched)
        return watched

    def start(self, worker: AnyWorker) -> None:
        """Run a worker, in a thread or as a task of the running event loop."""
        if isinstance(worker, aio.Worker):
            _require_loop()
        running = Running(worker)
        running.ended.set_running_or_notify_cancel()
        self._running.append(running)
        if isinstance(worker, aio.Worker):
            self._start_task(running, worker)
        else:
            self._start_thread(running, worker)

    def stop(self) -> list[Running]:
        """Request every worker that still runs to stop; return them.

        A request to a worker that does not run would end its next run.
        """
        for executor in self._executors:
            executor.forget()
        still = [running for running in self._running if not running.ended.done()]
        for running in still:
            running.worker.stop(at_once=True)
        return still

    def take_errors(self) -> list[BaseException]:
        """Return what handlers and workers have raised since the last call."""
        errors, self._errors = self._errors, []
        for running in self._running:
            error = running.ended.exception() if running.ended.done() else None
            if error is not None:
                errors.append(error)
        self._running = [one for one in self._running if not one.ended.done()]
        return errors

    def _start_thread(self, running: Running, worker: Worker) -> None:
        def run() -> None:
            _resolve(running.ended, partial(worker.run, handle_signals=False))
            self._timeline.end_handler(running)

        thread = threading.Thread(target=run, name="rabbitdelay-worker", daemon=True)
        self._timeline.begin_handler(running, lambda: thread)
        thread.start()

    def _start_task(self, running: Running, worker: aio.Worker) -> None:
        def ended(task: "asyncio.Task[None]") -> None:
            _resolve(running.ended, task.result)
            self._timeline.end_handler(running)

        running.task = task = asyncio.create_task(worker.run(handle_signals=False))
        self._timeline.begin_handler(running, lambda: task)
        task.add_done_callback(ended)

    def note(self, _job: Job, error: BaseException, _outcome: Outcome) -> None:
        """Record a handler's error, unless it requested a retry or a burial."""
        if not isinstance(error, Bury | Retry):
            self._errors.append(error)

    def _is_run_twice(self) -> bool:
        return self._duplicates > 0 and self._random.random() < self._duplicates


def _require_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidConfiguration(
            "an asyncio worker requires a running event loop: call run() in a coroutine, inside "
            "`async with MemoryBroker()`"
        ) from None


def _resolve(future: Future[None], act: Callable[[], None]) -> None:
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - raised in the test
        future.set_exception(error)
    else:
        future.set_result(None)
