"""The worker, which runs the handlers of its topics until it is stopped."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
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
from rabbitdelay.engine.flow import Awaited, Flow, Wait
from rabbitdelay.engine.transport_source import TransportSource
from rabbitdelay.engine.work import stop_signals
from rabbitdelay.engine.work.base_worker import BaseWorker
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.executors.thread_executor import PoolKind, ThreadExecutor, check_pool, new_caller
from rabbitdelay.system_time import TimeSource, unix_seconds


class Worker(BaseWorker[Client]):
    """Runs the registered handler for each job of its topics.

    Args:
        url, connection, namespace, declare, queue_type, stabilise_seconds, max_delay: As for
            Client.
        concurrency: Maximum number of handlers running at once, over all topics.
        prefetch: Maximum number of jobs reserved per topic, running or waiting. Default: the
            topic's own limit, else `concurrency`. A higher value is faster for small jobs. With
            several topics, a lower value keeps jobs from waiting here while another worker is idle.
        pool: Pool for plain functions: "thread", or "process" for handlers that may hang or crash.
            Each then runs in its own process, which is killed at the ttr. Coroutine functions run
            on the event loop and are cancelled at the ttr.
        grace: Seconds that running handlers may take to finish when the worker is stopped.
        allow_reply_to: Queues of other programs to which responses may be published, by name or by
            a pattern such as "myapp.*". The reply queues of this namespace's clients are always
            allowed.
        connect_timeout: Maximum wait for the first connection, in seconds.
        clock: Function that returns the current Unix time in seconds; for tests.
        transport: Broker in memory to use instead of RabbitMQ; for tests.
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
        stabilise_seconds: float | None = None,
        max_delay: float | timedelta | None = None,
        clock: TimeSource = unix_seconds,
        transport: TransportSource | None = None,
    ) -> None:
        self._pool_kind = check_pool(pool)
        settings = ClientSettings(
            url=url,
            namespace=namespace,
            declare=declare,
            queue_type=queue_type,
            connect_timeout=connect_timeout,
            stabilise_seconds=stabilise_seconds,
            allow_reply_to=allow_reply_to,
            max_delay=max_delay,
            clock=clock,
            transport=transport,
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
        """Run until SIGTERM, SIGINT or `stop`, then let handlers finish within the grace period.

        A second signal ends the worker at once. With `max_jobs`, it ends after that many handler
        runs; with `until_empty`, when no job of its topics is ready. A handler in a thread that
        exceeds the grace period keeps running, but its job is released.

        By default the worker handles each of the two signals for which the program has not set a
        handler of its own, and neither signal outside the main thread. With `handle_signals=False`
        it handles neither, and the program calls `stop`. With `handle_signals=True` it handles
        both.

        Raises:
            WorkerFailed: 100 tasks or threads are stuck in handlers that do not return.
            ConnectionFailed: The worker has not been able to connect to the broker yet.
            TopologyError: A queue is missing, has other arguments, or may not be declared.
        """
        with self._on_signals(handle_signals):
            await drive(
                self._run(max_jobs, until_empty=until_empty), self._engine.settings.transport
            )

    def _new_executor(self, consumer: Consumer) -> Flow[Executor]:
        loop = asyncio.get_running_loop()
        plain = [handler for handler in self._handlers.values() if not handler.is_async]
        threads = None
        if plain:
            caller = yield Wait(
                in_background(partial(new_caller, self._pool_kind, plain)), awaited=Awaited.MACHINE
            )
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
        """Stop the worker on the signals that it handles."""
        loop = asyncio.get_running_loop()
        numbers = stop_signals.to_handle(handle_signals)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, self._stop_requests.signalled)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                with suppress(TypeError):  # a handler that was not set from Python
                    signal.signal(number, before[number])
