"""The worker: handlers for topics, run until it is told to stop."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any, Literal, TypeVar

from rabbitdelay import duration
from rabbitdelay.core import intake
from rabbitdelay.core.handlers import Handler, check_hook, make_handler
from rabbitdelay.core.retry import (
    DEFAULT_BACKOFF_MAX_SECONDS,
    DEFAULT_BACKOFF_SECONDS,
    DEFAULT_MAX_ATTEMPTS,
    RetryPolicy,
)
from rabbitdelay.core.setup import SETTLE_SECONDS
from rabbitdelay.core.tally import Snapshot
from rabbitdelay.core.topology import QueueType
from rabbitdelay.errors import (
    InvalidConfiguration,
    InvalidJob,
    RabbitDelayError,
    WorkerFailed,
)
from rabbitdelay.sync import lifetime
from rabbitdelay.sync.calling import HereCaller
from rabbitdelay.sync.children import ChildCaller
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.dispatcher import Dispatcher
from rabbitdelay.sync.pool import Pool
from rabbitdelay.sync.popping import MAX_AT_ONCE
from rabbitdelay.sync.running import Hooks, Runner
from rabbitdelay.sync.users import Users

logger = logging.getLogger("rabbitdelay.worker")

Function = TypeVar("Function", bound=Callable[..., Any])
PoolKind = Literal["thread", "process"]
MAX_LOST_THREADS = 100
"""With so many threads that do not come back, the process is beyond help."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What a worker has done and does."""

    counts: Snapshot
    running: int
    """Handlers at work."""
    lost_threads: int
    """Threads whose handler is still at work on a job that was taken from it."""


class Worker:
    """Runs a handler for each job of its topics.

    Args:
        url, namespace, declare, queue_type, settle_seconds, max_delay: As for Client.
        concurrency: How many handlers at once, of all topics together.
        prefetch: How many jobs of a topic are held at once, running or not. Default: as many as
            may run. More is faster for small jobs; with less, none waits here for its turn while
            another worker is idle, which may be with several topics.
        pool: "thread", or "process" for handlers that may hang or crash: each runs in a process
            of its own, which is killed at the ttr.
        grace: How long handlers may take to finish when the worker is told to stop, in seconds.
        connect_timeout: How long to wait for the first connection, in seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        concurrency: int = 10,
        prefetch: int | None = None,
        pool: PoolKind = "thread",
        grace: float | timedelta = 30.0,
        namespace: str = "rabbitdelay",
        declare: bool = True,
        queue_type: QueueType = "quorum",
        connect_timeout: float = 10.0,
        settle_seconds: float = SETTLE_SECONDS,
        max_delay: float | timedelta | None = None,
    ) -> None:
        if pool not in ("thread", "process"):
            raise InvalidConfiguration(f"pool must be 'thread' or 'process', not {pool!r}")
        self._concurrency = _count(concurrency, "concurrency")
        self._prefetch = None if prefetch is None else _count(prefetch, "prefetch")
        self._pool_kind: PoolKind = pool
        self._grace_seconds = _seconds(grace, "grace")
        self._connect_timeout = connect_timeout
        self._handlers: dict[str, Handler] = {}
        self._hooks = Hooks()
        self._stop = threading.Event()
        self._stop_now = threading.Event()
        self._signals = 0
        self._dispatcher: Dispatcher | None = None
        self._pool: Pool | None = None
        self._new_client = partial(
            Client,
            url,
            namespace=namespace,
            declare=declare,
            queue_type=queue_type,
            connect_timeout=connect_timeout,
            settle_seconds=settle_seconds,
            max_delay=max_delay,
        )
        self._running = threading.Lock()
        self._has_run = False
        self.client = self._new_client()
        """For handlers that put jobs. It is closed at the end of `run`."""

    # What people say before it runs

    def handler(
        self,
        topic: str,
        *,
        ttr: float | timedelta | None = None,
        concurrency: int | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        backoff: float | timedelta = DEFAULT_BACKOFF_SECONDS,
        backoff_max: float | timedelta = DEFAULT_BACKOFF_MAX_SECONDS,
        auto_touch: bool = False,
        keep_responses: bool = False,
    ) -> Callable[[Function], Function]:
        """Make a function the handler of a topic.

        A parameter annotated with Job gets the job; the other one gets the body, validated when it
        is annotated with a pydantic model. What the function returns is the job's response; what
        it raises gives the job back, or buries it.

        Args:
            topic: The topic.
            ttr: How long it may hold a job whose putter did not say so.
            concurrency: How many jobs of this topic at once; the worker's if absent.
            max_attempts: How often a job is tried that does not say so itself, then it is buried.
            backoff: How long to wait before the second attempt; it doubles with each.
            backoff_max: What backoff does not grow beyond.
            auto_touch: Whether the ttr is renewed for as long as the function runs.
            keep_responses: Whether its return values are kept in a queue of the topic's own.
        """
        if not isinstance(topic, str):
            raise InvalidConfiguration('name the topic: @worker.handler("topic")')

        def register(function: Function) -> Function:
            if topic in self._handlers:
                raise InvalidConfiguration(f"topic {topic} has a handler already")
            self._handlers[topic] = make_handler(
                topic,
                function,
                policy=RetryPolicy(max_attempts, backoff, backoff_max),
                ttr=ttr,
                concurrency=None if concurrency is None else _count(concurrency, "concurrency"),
                auto_touch=auto_touch,
                keep_responses=keep_responses,
            )
            return function

        return register

    def before(self, hook: Function) -> Function:
        """Call this with each job before its handler; what it raises counts as the handler's."""
        self._hooks.before.append(check_hook(hook, 1))
        return hook

    def after(self, hook: Function) -> Function:
        """Call this with each job and its response, after it was finished."""
        self._hooks.after.append(check_hook(hook, 2))
        return hook

    def on_error(self, hook: Function) -> Function:
        """Call this with each job and the exception that its handler raised, or TimedOut."""
        self._hooks.on_error.append(check_hook(hook, 2))
        return hook

    # Running

    def run(self, *, max_jobs: int | None = None, until_empty: bool = False) -> None:
        """Run until SIGTERM, SIGINT or `stop`; then let handlers finish within the grace.

        A second signal ends it at once. With `max_jobs` it ends after so many runs of handlers,
        with `until_empty` when no job of its topics is ready. A handler in a thread that overruns
        the grace goes on in it, while its job is given back.

        Raises:
            WorkerFailed: 100 threads were lost to handlers that do not come back.
            ConnectionFailed: There has been no connection to the broker yet.
            TopologyError: A queue is missing, has other arguments, or may not be made.
        """
        if not self._handlers:
            raise InvalidConfiguration("the worker has no handler: decorate one with .handler()")
        if not self._running.acquire(blocking=False):
            raise InvalidConfiguration("the worker runs already")
        try:
            self._run(max_jobs, until_empty)
        finally:
            self._running.release()

    def _run(self, max_jobs: int | None, until_empty: bool) -> None:  # noqa: FBT001 - run's own
        self._begin_run()
        try:
            with self._on_signals(), self._working(max_jobs, until_empty) as dispatcher:
                self._watch(dispatcher)
                self._let_finish(dispatcher)
        finally:
            self.client.close(self._flush_seconds)
            self._stop.clear()
        if dispatcher.failure is not None:
            raise dispatcher.failure

    def stop(self, *, at_once: bool = False) -> None:
        """Take nothing more, let handlers finish within the grace, and return from `run`."""
        if at_once:
            self._stop_now.set()
        self._stop.set()

    @property
    def was_stopped_at_once(self) -> bool:
        """Whether it was not let to finish: by a second signal, or by `stop(at_once=True)`."""
        return self._stop_now.is_set() or self._signals > 1

    def stats(self) -> WorkerStats:
        """What it has done so far, and does now."""
        stats = self.last_stats
        if stats is None:
            raise RabbitDelayError("the worker has not run yet")
        return stats

    @property
    def last_stats(self) -> WorkerStats | None:
        """The same, or None before it runs."""
        dispatcher, pool = self._dispatcher, self._pool
        if dispatcher is None or pool is None:
            return None
        counts = dispatcher.holding.tally.snapshot(time.monotonic())
        return WorkerStats(counts, dispatcher.running, pool.lost)

    @contextmanager
    def _working(self, max_jobs: int | None, until_empty: bool) -> Iterator[Dispatcher]:  # noqa: FBT001 - run's own
        caller = self._new_caller()
        consumer = self.client.new_consumer(lambda topic: self._handlers[topic].policy)
        pool = Pool(self._concurrency, "rabbitdelay-handler")
        runner = Runner(consumer.holding, consumer.topology, self._hooks, caller)
        follower = self.client.new_follower(consumer)
        dispatcher = Dispatcher(
            consumer,
            follower,
            self._handlers,
            concurrency=self._concurrency,
            prefetch=self._prefetch,
            pool=pool,
            work=runner.work,
            timed_out=runner.timed_out,
            max_jobs=max_jobs,
            until_empty=until_empty,
        )
        self._dispatcher, self._pool = dispatcher, pool
        try:
            consumer.start(Users(follower, dispatcher), self._connect_timeout)
            self.client.rescue()
            yield dispatcher
        finally:
            consumer.close(self._flush_seconds)
            pool.close()
            caller.close()

    def _begin_run(self) -> None:
        if self._has_run:
            self.client = self._new_client()
            self._signals = 0
            self._stop_now.clear()
        self._has_run = True

    @property
    def _flush_seconds(self) -> float:
        """How long copies on their way are waited for: what is not confirmed then goes back."""
        return 1.0 if self.was_stopped_at_once else lifetime.EXIT_FLUSH_SECONDS

    def _new_caller(self) -> HereCaller | ChildCaller:
        if self._pool_kind == "thread":
            return HereCaller()
        return ChildCaller.started(self._handlers.values())

    def _watch(self, dispatcher: Dispatcher) -> None:
        """Wait until it is to stop."""
        topics = ", ".join(self._handlers)
        logger.info("worker runs: %d at once of %s", self._concurrency, topics)
        assert self._pool is not None
        while not (self._is_stopping or dispatcher.is_done.is_set()):
            self._stop.wait(0.1)
            if self._pool.lost >= MAX_LOST_THREADS:
                dispatcher.failure = WorkerFailed(
                    f"{MAX_LOST_THREADS} handlers have not come back from jobs that were taken "
                    'from them: give them timeouts, or use pool="process"'
                )
                return

    def _let_finish(self, dispatcher: Dispatcher) -> None:
        dispatcher.stop()
        if running := dispatcher.running:
            text = (
                "worker stops: %s still at work, for at most %g s; a second signal ends it at once"
            )
            logger.warning(text, _jobs(running), self._grace_seconds)
        deadline = time.monotonic() + self._grace_seconds
        while time.monotonic() < deadline and not self.was_stopped_at_once:
            if dispatcher.is_idle.wait(0.05):
                break
        if not dispatcher.is_idle.is_set():
            logger.warning("worker ends, %s not done: given back", _jobs(dispatcher.running))
        else:
            logger.info("worker ends")

    @contextmanager
    def _on_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT; in any other thread than the first, signals cannot be had."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._signalled) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        """Only note it: the thread that it interrupts may hold the lock of any event."""
        self._signals += 2 if self._stop.is_set() else 1

    @property
    def _is_stopping(self) -> bool:
        return self._stop.is_set() or self._signals > 0


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _seconds(value: float | timedelta, what: str) -> float:
    try:
        return duration.seconds(value, what=what)
    except InvalidJob as error:
        raise InvalidConfiguration(str(error)) from None


def _count(value: int, what: str) -> int:
    try:
        return intake.check_count(value, what, MAX_AT_ONCE)
    except RabbitDelayError as error:
        raise InvalidConfiguration(str(error)) from None
