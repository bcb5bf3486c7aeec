"""The worker: handlers for topics, run until it is told to stop."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial

from aio_pika import Connection

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.aio.client import Client, new_engine
from rabbitdelay.aio.task_executor import TaskExecutor
from rabbitdelay.core.topology.topology import QueueType
from rabbitdelay.engine.background import in_background
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.work import signals
from rabbitdelay.engine.work.base_worker import BaseWorker
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.executors.thread_executor import PoolKind, ThreadExecutor, check_pool, new_caller


class Worker(BaseWorker[Client]):
    """Runs a handler for each job of its topics.

    Args:
        url, connection, namespace, declare, queue_type, settle_seconds, max_delay: As for Client.
        concurrency: How many handlers at once, of all topics together.
        prefetch: How many jobs of a topic are held at once, running or not. Default: as many as
            may run. More is faster for small jobs; with less, none waits here for its turn while
            another worker is idle, which may be with several topics.
        pool: Where plain functions run: "thread", or "process" for handlers that may hang or
            crash: each runs in a process of its own, which is killed at the ttr. Coroutine
            functions run on the event loop, and are cancelled at the ttr.
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
        connection: Connection | None = None,
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
            partial(new_engine, settings, connection),
            Client._over,  # noqa: SLF001 - not for users
            concurrency=concurrency,
            prefetch=prefetch,
            grace=grace,
        )

    async def run(
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
            await drive(self._run(max_jobs, until_empty=until_empty))

    def _new_executor(self, consumer: Consumer) -> Flow[Executor]:
        loop = asyncio.get_running_loop()
        plain = [handler for handler in self._handlers.values() if not handler.is_async]
        threads = None
        if plain:
            caller = yield Wait(in_background(partial(new_caller, self._pool_kind, plain)))
            threads = ThreadExecutor(
                consumer,
                self._hooks,
                caller,
                self._concurrency,
                lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(),
            )
        return TaskExecutor(consumer, self._hooks, threads)

    @contextmanager
    def _on_signals(self, handle_signals: bool | None) -> Iterator[None]:  # noqa: FBT001 - run's
        """Stop on the signals that are the worker's to handle."""
        loop = asyncio.get_running_loop()
        numbers = signals.to_handle(handle_signals)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                with suppress(TypeError):  # a handler that was not set from Python
                    signal.signal(number, before[number])
