"""The part of a worker that both front ends share.

Each runs handlers and handles signals itself.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from rabbitdelay import duration
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.work.error_policies import ErrorPolicy, Policies
from rabbitdelay.core.work.handlers import Handler, check_hook, error_hook, make_handler
from rabbitdelay.core.work.retry import (
    DEFAULT_BACKOFF_MAX_SECONDS,
    DEFAULT_BACKOFF_SECONDS,
    DEFAULT_MAX_ATTEMPTS,
    Backoff,
    RetryPolicy,
)
from rabbitdelay.core.work.stats import StatsRecorder, WorkerCounts
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.listener import ConsumerListeners
from rabbitdelay.engine.dispatch.dispatcher import Dispatcher
from rabbitdelay.engine.flow import Awaited, Flow, Sleep, Wait
from rabbitdelay.engine.pop.popper import MAX_AT_ONCE
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.engine.work.runner import Hooks
from rabbitdelay.engine.work.stop_requests import StopRequests
from rabbitdelay.errors import (
    InvalidConfiguration,
    InvalidJob,
    RabbitDelayError,
    WorkerFailed,
)

logger = logging.getLogger("rabbitdelay.worker")

Function = TypeVar("Function", bound=Callable[..., Any])
MAX_LOST = 100
"""Number of lost threads or tasks at which the worker gives up, because the process cannot
recover."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """The counts of a worker, and its current state."""

    counts: WorkerCounts
    running: int
    """Number of running handlers."""
    lost_threads: int
    """Number of threads or tasks whose handler is still running after its job was taken from it."""


AnyClient = TypeVar("AnyClient")
"""The client of a front end."""


class BaseWorker(ABC, Generic[AnyClient]):
    """A worker, except for the way in which its handlers run."""

    def __init__(
        self,
        new_engine: Callable[[], ClientEngine],
        new_client: Callable[[ClientEngine], AnyClient],
        *,
        concurrency: int,
        prefetch: int | None,
        grace: float | timedelta,
    ) -> None:
        self._concurrency = _count(concurrency, "concurrency")
        self._prefetch = None if prefetch is None else _count(prefetch, "prefetch")
        self._grace_seconds = _seconds(grace, "grace")
        self._handlers: dict[str, Handler] = {}
        self._hooks = Hooks()
        self._stop_requests = StopRequests()
        self._is_running = False
        self._has_run = False
        self._dispatcher: Dispatcher | None = None
        self._executor: Executor | None = None
        self._new_engine = new_engine
        self._new_client = new_client
        self._engine = new_engine()
        self.client = new_client(self._engine)
        """Client for handlers that put jobs; closed at the end of `run`."""

    # Before it runs

    def handler(
        self,
        topic: str,
        *,
        ttr: float | timedelta | None = None,
        concurrency: int | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        backoff: Backoff = DEFAULT_BACKOFF_SECONDS,
        backoff_max: float | timedelta = DEFAULT_BACKOFF_MAX_SECONDS,
        timeout_delay: float | timedelta = 0.0,
        policies: Mapping[type[BaseException], ErrorPolicy] | None = None,
        auto_touch: bool = False,
        keep_responses: bool = False,
    ) -> Callable[[Function], Function]:
        """Register a function as the handler of a topic.

        A parameter annotated with Job receives the job. The other one receives the body, which is
        validated if the annotation is a pydantic model. The return value of the function is the
        job's response. If it raises, the job is retried or buried.

        Args:
            topic: Topic whose jobs the function handles.
            ttr: Time to run of jobs that do not set their own.
            concurrency: Maximum number of jobs of this topic that run at once; by default the
                worker's.
            max_attempts: Maximum attempts for jobs that do not set their own; then a job is buried.
            backoff: Delay before the second attempt, in seconds or as a timedelta; it doubles with
                each further attempt. The delays of a list, such as [5, 15, 30, 60], are used in
                turn, and the last one repeats.
            backoff_max: Upper bound of the backoff.
            timeout_delay: Delay before the next attempt of a job whose ttr has expired. The handler
                of the previous attempt may still be running.
            policies: Policies by exception type, of which the nearest base class applies: a
                RetryPolicy, a backoff, or Bury.
            auto_touch: Whether to renew the ttr for as long as the function runs.
            keep_responses: Whether to keep the return values in a queue of the topic.
        """
        if not isinstance(topic, str):
            raise InvalidConfiguration('handler requires a topic: @worker.handler("topic")')

        default = RetryPolicy(max_attempts, backoff, backoff_max, timeout_delay)

        def register(function: Function) -> Function:
            if topic in self._handlers:
                raise InvalidConfiguration(f"topic {topic} already has a handler")
            self._handlers[topic] = make_handler(
                topic,
                function,
                policies=Policies.of(default, policies),
                ttr=ttr,
                concurrency=None if concurrency is None else _count(concurrency, "concurrency"),
                auto_touch=auto_touch,
                keep_responses=keep_responses,
            )
            return function

        return register

    def before(self, hook: Function) -> Function:
        """Call a hook with each job before its handler.

        An error of the hook counts as the handler's.
        """
        self._hooks.before.append(check_hook(hook, 1))
        return hook

    def after(self, hook: Function) -> Function:
        """Call a hook with each finished job and its response."""
        self._hooks.after.append(check_hook(hook, 2))
        return hook

    def on_error(self, hook: Function) -> Function:
        """Call a hook with each failed job, its exception and its Outcome.

        The exception is TimedOut if the job's ttr has expired. The Outcome says whether and when
        the job is retried, or why it is buried. A hook with two parameters is called without it.
        """
        self._hooks.on_error.append(error_hook(hook))
        return hook

    # While it runs

    def stop(self, *, at_once: bool = False) -> None:
        """Stop `run`: take no more jobs, and let running handlers finish within the grace."""
        self._stop_requests.stop(at_once=at_once)

    @property
    def was_stopped_at_once(self) -> bool:
        """Whether the grace was cut short by a second signal or by `stop(at_once=True)`."""
        return self._stop_requests.is_at_once

    def stats(self) -> WorkerStats:
        """Return the counts and the current state of the worker; zeros before it runs."""
        now = self._engine.settings.monotonic()
        return self.last_stats or WorkerStats(StatsRecorder(now).counts_at(now), 0, 0)

    @property
    def last_stats(self) -> WorkerStats | None:
        """The statistics; None before the worker runs."""
        dispatcher, executor = self._dispatcher, self._executor
        if dispatcher is None or executor is None:
            return None
        counts = dispatcher.settlement.stats.counts_at(self._engine.settings.monotonic())
        return WorkerStats(counts, dispatcher.running, executor.lost)

    # For the front ends

    @abstractmethod
    def _new_executor(self, consumer: Consumer) -> Flow[Executor]:
        """Return the executor that runs the handlers."""

    def _run(self, max_jobs: int | None, *, until_empty: bool) -> Flow[None]:
        """Run until stopped, and until running jobs are finished or given back."""
        if not self._handlers:
            raise InvalidConfiguration(
                "the worker has no handlers: register one with @worker.handler(topic)"
            )
        if self._is_running:
            raise InvalidConfiguration("the worker is already running")
        self._is_running = True
        try:
            yield from self._run_once(max_jobs, until_empty=until_empty)
        finally:
            self._is_running = False

    def _run_once(self, max_jobs: int | None, *, until_empty: bool) -> Flow[None]:
        self._begin_run()
        try:
            yield from self._work(max_jobs, until_empty=until_empty)
        finally:
            yield from self._engine.close(self._flush_seconds)
            self._stop_requests.end_run()
        assert self._dispatcher is not None
        if self._dispatcher.failure is not None:
            raise self._dispatcher.failure

    def _renew_client(self) -> None:
        self._engine = self._new_engine()
        self.client = self._new_client(self._engine)

    def _begin_run(self) -> None:
        if self._has_run:
            self._renew_client()
            self._stop_requests.begin_another_run()
        self._has_run = True

    def _work(self, max_jobs: int | None, *, until_empty: bool) -> Flow[None]:
        engine = self._engine
        consumer, log_reader = yield from engine.connections.new_consumer(
            lambda topic: self._handlers[topic].policies
        )
        executor = yield from self._new_executor(consumer)
        if engine.settings.transport is not None:
            executor = engine.settings.transport.watch(executor)
        self._executor = executor
        dispatcher = self._dispatcher = Dispatcher(
            consumer,
            log_reader,
            self._handlers,
            concurrency=self._concurrency,
            prefetch=self._prefetch,
            executor=executor,
            max_jobs=max_jobs,
            until_empty=until_empty,
            told=self._stop_requests.told,
        )
        try:
            consumer.start(ConsumerListeners(log_reader, dispatcher))
            yield from consumer.connected(engine.settings.connect_timeout)
            yield from self._watch(dispatcher, executor)
            yield from self._let_finish(dispatcher)
        finally:
            yield from consumer.close(self._flush_seconds)
            yield from executor.close()

    @property
    def _flush_seconds(self) -> float:
        """Time for copies in flight, in seconds.

        Jobs whose copy is not confirmed by then are requeued.
        """
        return 1.0 if self.was_stopped_at_once else process_lifetime.EXIT_FLUSH_SECONDS

    def _watch(self, dispatcher: Dispatcher, executor: Executor) -> Flow[None]:
        """Wait until the worker has to stop."""
        topics = ", ".join(self._handlers)
        logger.info("worker: running (concurrency %d, topics %s)", self._concurrency, topics)
        while not (self._stop_requests.is_stopping or dispatcher.is_done):
            yield from self._until_told(dispatcher)
            if executor.lost >= MAX_LOST:
                error = WorkerFailed(
                    f"{MAX_LOST} handlers are still running after the ttr of their jobs: "
                    'set timeouts in them, or use pool="process"'
                )
                dispatcher.fail(error)
                return

    def _until_told(self, dispatcher: Dispatcher) -> Flow[None]:
        """Wait until something may have changed. A signal handler can only be looked for."""
        told = self._stop_requests.told.next()
        if not (self._stop_requests.is_stopping or dispatcher.is_done):
            with suppress(TimeoutError):
                yield Wait(told, LOOK_SECONDS, awaited=Awaited.SIGNAL)

    def _let_finish(self, dispatcher: Dispatcher) -> Flow[None]:
        dispatcher.stop()
        if running := dispatcher.running:
            text = "worker: stopping (%s running, grace %g s; a second signal stops it at once)"
            logger.info(text, _jobs(running), self._grace_seconds)
        deadline = self._engine.settings.monotonic() + self._grace_seconds
        while self._engine.settings.monotonic() < deadline and not self.was_stopped_at_once:
            if dispatcher.is_idle.is_set():
                break
            yield Sleep(0.01)
        if unfinished := dispatcher.running:
            logger.warning("worker: stopped (%s unfinished, given back)", _jobs(unfinished))
        else:
            logger.info("worker: stopped")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _seconds(value: float | timedelta, what: str) -> float:
    try:
        return duration.seconds(value, what=what)
    except InvalidJob as error:
        raise InvalidConfiguration(str(error)) from None


def _count(value: int, what: str) -> int:
    try:
        return validation.check_count(value, what, MAX_AT_ONCE)
    except RabbitDelayError as error:
        raise InvalidConfiguration(str(error)) from None
