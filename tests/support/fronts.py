"""Both front ends behind one interface, so that each test is written once and run against both.

The interface is that of the sync front end, whose calls block. For the asyncio front end, an event
loop runs in a thread, and each call is run on that loop and waited for. The programs that tests
start select a front end by its name.
"""

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import aio_pika
from aio_pika.abc import AbstractConnection

from rabbitdelay import Client, Worker, aio
from tests.support.brokers.proxy import Proxy
from tests.support.memory.memory_back_end import MemoryBackEnd
from tests.support.patience import patience, wait_until

Result = TypeVar("Result")
AWAITED = (aio.ReservedJob, aio.ClientTopology)
"""Types of results with methods that have to be awaited."""
NAMES = ("sync", "aio")
IN_MEMORY = "memory"
"""Ends the name of a front end that uses the broker in memory."""
WITH_MEMORY = (*NAMES, *(f"{name}-{IN_MEMORY}" for name in NAMES))
"""All front ends, against RabbitMQ and against the broker in memory."""
WITH_LENT = (*WITH_MEMORY, "lent")
"""Those, and the asyncio front end on a connection that the application lends."""


class BackEnd(Protocol):
    """A broker, as far as clients and workers have to be told which one."""

    @property
    def url(self) -> str | None:
        """The URL of a broker of the test's own; None for the one that tests share."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of clients and workers that use this broker."""

    def proxy(self, url: str, *, delay_seconds: float = 0.0) -> AbstractContextManager[Proxy]:
        """Return a proxy to the broker, for simulating network faults."""

    def close(self) -> None:
        """End the broker, if it is the test's own."""


class RabbitBackEnd:
    """RabbitMQ: the broker that tests share, or any other at a URL."""

    url = None
    options: ClassVar[dict[str, Any]] = {}

    def proxy(self, url: str, *, delay_seconds: float = 0.0) -> AbstractContextManager[Proxy]:
        """Return a TCP proxy."""
        return Proxy(url, delay_seconds=delay_seconds)

    def close(self) -> None:
        """Do nothing."""


class Front(ABC):
    """Creates clients and workers of one front end."""

    name: str

    def __init__(self, back_end: BackEnd | None = None) -> None:
        self.back_end = back_end or RabbitBackEnd()

    @property
    def url(self) -> str | None:
        """The URL of a broker of the test's own; None for the one that tests share."""
        return self.back_end.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def client(self, url: str | None = None, **options: Any) -> Client:  # noqa: ANN401 - passed on
        """Return a client whose calls block."""

    @abstractmethod
    def worker(self, url: str | None = None, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        """Return a worker whose `run` blocks."""

    @abstractmethod
    def run(self, worker: Worker, **options: Any) -> None:  # noqa: ANN401 - passed on
        """Run a worker as a program does: in the main thread, with signal handlers."""

    @abstractmethod
    def close(self) -> None:
        """Release the front end's resources. Tasks that still run are an error."""


class SyncFront(Front):
    """The sync front end, unchanged."""

    name = "sync"

    def client(self, url: str | None = None, **options: Any) -> Client:  # noqa: ANN401 - passed on
        """Return a client."""
        return Client(url, **self.back_end.options, **options)

    def worker(self, url: str | None = None, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        """Return a worker."""
        return Worker(url, **self.back_end.options, **options)

    def run(self, worker: Worker, **options: Any) -> None:  # noqa: ANN401 - passed on
        """Run a worker."""
        worker.run(**options)

    def close(self) -> None:
        """End the broker in memory."""
        self.back_end.close()


class AioFront(Front):
    """The asyncio front end, on an event loop in a thread."""

    name = "aio"

    def __init__(self, back_end: BackEnd | None = None) -> None:
        super().__init__(back_end)
        self.loop = LoopThread()

    def client(self, url: str | None = None, **options: Any) -> Client:  # noqa: ANN401 - passed on
        """Return a client whose calls block."""
        return cast(
            "Client", BlockingClient(self.loop, aio.Client(url, **self.back_end.options, **options))
        )

    def worker(self, url: str | None = None, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        """Return a worker whose `run` blocks."""
        return cast(
            "Worker", Blocking(self.loop, aio.Worker(url, **self.back_end.options, **options))
        )

    def run(self, worker: Worker, **options: Any) -> None:  # noqa: ANN401 - passed on
        """Run a worker on an event loop of its own."""
        asyncio.run(unwrap(worker).run(**options))

    def close(self) -> None:
        """Stop the event loop, and end the broker in memory."""
        self.loop.close()
        self.back_end.close()


class LentFront(AioFront):
    """The asyncio front end on aio-pika connections that the tests lend to clients and workers."""

    name = "lent"

    def __init__(self, back_end: BackEnd | None = None) -> None:
        super().__init__(back_end)
        self._lent: list[AbstractConnection] = []

    def client(self, url: str | None = None, **options: Any) -> Client:  # noqa: ANN401 - passed on
        """Return a client on a new connection."""
        return super().client(connection=self._connect(url), **options)

    def worker(self, url: str | None = None, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        """Return a worker on a new connection."""
        return super().worker(connection=self._connect(url), **options)

    def close(self) -> None:
        """Assert that the connections are still open, close them, and stop the event loop."""
        still_open = [not connection.is_closed for connection in self._lent]
        for connection in self._lent:
            self.loop.call(connection.close())
        super().close()
        assert all(still_open)

    def _connect(self, url: str | None) -> AbstractConnection:
        connection = self.loop.call(_connected(url))
        self._lent.append(connection)
        return connection


async def _connected(url: str | None) -> AbstractConnection:
    return await aio_pika.connect(url)


def front_named(name: str) -> Front:
    """Return the front end with this name."""
    kinds: dict[str, type[SyncFront | AioFront]] = {
        "sync": SyncFront,
        "aio": AioFront,
        "lent": LentFront,
    }
    kind, _, back_end = name.partition("-")
    return kinds[kind](MemoryBackEnd() if back_end == IN_MEMORY else None)


class LoopThread:
    """An event loop in a thread. Closing it asserts that no task is left and that none failed."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        """Errors that reached only the event loop's exception handler."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and return its result; cancel it if the wait is aborted."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop after all tasks have ended."""
        try:
            left = "tasks are left on the event loop"
            wait_until(lambda: not asyncio.all_tasks(self.loop), seconds=6, what=left)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(patience(10))
            self.loop.close()
        assert self.failures == []

    def _failed(self, _loop: object, context: dict[str, Any]) -> None:
        self.failures.append(f"{context['message']}: {context.get('exception')!r}")


class Blocking:
    """Wraps an async object so that its coroutine methods block; everything else is unchanged."""

    def __init__(self, loop: LoopThread, awaited: Any) -> None:  # noqa: ANN401 - a client, a job ...
        self.loop = loop
        self.awaited = awaited

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        found = getattr(self.awaited, name)
        is_coroutine = inspect.iscoroutinefunction(found)
        return self._blocking_call(found) if is_coroutine else self._wrap(found)

    def __repr__(self) -> str:
        return repr(self.awaited)

    def __enter__(self) -> Self:
        self.loop.call(self.awaited.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.loop.call(self.awaited.__aexit__(kind, error, traceback))

    def _blocking_call(
        self, function: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - passed on
            return self._wrap(self.loop.call(function(*map(unwrap, arguments), **options)))

        return call

    def _wrap(self, result: Any) -> Any:  # noqa: ANN401 - any result
        if isinstance(result, list):
            return [self._wrap(one) for one in result]
        return Blocking(self.loop, result) if isinstance(result, AWAITED) else result


class BlockingClient(Blocking):
    """A client whose calls block."""

    def put_nowait(self, *arguments: Any, **options: Any) -> Future[Any]:  # noqa: ANN401 - passed on
        """Put a job without waiting."""

        async def put() -> asyncio.Task[Any]:
            return self.awaited.put_nowait(*arguments, **options)  # type: ignore[no-any-return]

        async def result(task: asyncio.Task[Any]) -> Any:  # noqa: ANN401 - a job
            return await task

        return asyncio.run_coroutine_threadsafe(result(self.loop.call(put())), self.loop.loop)

    def buried(self, topic: str) -> "BlockingJobs":
        """Return the buried jobs of a topic, whose verbs wait."""
        return BlockingJobs(self.loop, self.awaited.buried(topic))

    def unrouted(self) -> "BlockingJobs":
        """Return the jobs that could not be routed, whose verbs wait."""
        return BlockingJobs(self.loop, self.awaited.unrouted())


class BlockingJobs(Blocking):
    """Parked jobs that are listed by an iterator, which waits."""

    def list(self, **options: Any) -> Iterator[Any]:  # noqa: ANN401 - passed on
        """Yield jobs."""
        found = self.awaited.list(**options)

        async def following() -> Any:  # noqa: ANN401 - a job
            return await anext(found, None)

        try:
            while (job := self.loop.call(following())) is not None:
                yield job
        finally:
            self.loop.call(found.aclose())


def unwrap(one: Any) -> Any:  # noqa: ANN401 - anything
    """Return the async object that a `Blocking` wraps, or the object itself."""
    return one.awaited if isinstance(one, Blocking) else one
