"""The worker: handlers for topics, run until it is told to stop."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from rabbitdelay.core.topology.topology import QueueType
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.work import signals
from rabbitdelay.engine.work.base_worker import BaseWorker
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.executors.blocking import drive, refuse
from rabbitdelay.executors.thread_executor import PoolKind, ThreadExecutor, check_pool, new_caller
from rabbitdelay.sync.client import Client, new_engine


class Worker(BaseWorker[Client]):
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
        allow_reply_to: Queues of other programs that responses may be written to, by name or by a
            pattern such as "myapp.*". Always allowed: the reply queues of this namespace's clients.
        connect_timeout: How long to wait for the first connection, in seconds.
        clock: Tells the time, in seconds since 1970; for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        concurrency: int = 10,
        prefetch: int | None = None,
        pool: PoolKind = "thread",
        grace: float | timedelta = 30.0,
        allow_reply_to: Sequence[str] = (),
        namespace: str = "rabbitdelay",
        declare: bool = True,
        queue_type: QueueType = "quorum",
        connect_timeout: float = 10.0,
        settle_seconds: float | None = None,
        max_delay: float | timedelta | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pool_kind = check_pool(pool)
        settings = ClientSettings(
            url=url,
            namespace=namespace,
            declare=declare,
            queue_type=queue_type,
            connect_timeout=connect_timeout,
            settle_seconds=settle_seconds,
            allow_reply_to=allow_reply_to,
            max_delay=max_delay,
            clock=clock,
        )
        super().__init__(
            partial(new_engine, settings),
            Client._over,  # noqa: SLF001 - not for users
            concurrency=concurrency,
            prefetch=prefetch,
            grace=grace,
        )

    def run(
        self,
        *,
        max_jobs: int | None = None,
        until_empty: bool = False,
        handle_signals: bool | None = None,
    ) -> None:
        """Run until SIGTERM, SIGINT or `stop`; then let handlers finish within the grace.

        A second signal ends it at once. With `max_jobs` it ends after so many runs of handlers,
        with `until_empty` when no job of its topics is ready. A handler in a thread that overruns
        the grace goes on in it, while its job is given back.

        By default it handles those of the two signals that the program has left to Python, and none
        on another thread than the main one. `handle_signals=False` leaves both to the program,
        which calls `stop`; `handle_signals=True` takes both.

        Raises:
            WorkerFailed: 100 threads were lost to handlers that do not come back.
            ConnectionFailed: There has been no connection to the broker yet.
            TopologyError: A queue is missing, has other arguments, or may not be made.
        """
        with self._on_signals(handle_signals):
            drive(self._run(max_jobs, until_empty=until_empty))

    def _new_executor(self, consumer: Consumer) -> Flow[Executor]:
        caller = new_caller(self._pool_kind, self._handlers.values())
        yield from ()
        return ThreadExecutor(consumer, self._hooks, caller, self._concurrency, refuse)

    @contextmanager
    def _on_signals(self, handle_signals: bool | None) -> Iterator[None]:  # noqa: FBT001 - run's
        """Stop on the signals that are the worker's to handle."""
        numbers = signals.to_handle(handle_signals)
        before = {number: signal.signal(number, self._signalled) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
