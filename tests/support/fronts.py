"""The two fronts in one shape: what a test says is said once, and run against both.

The shape is that of the sync front, whose calls wait. The asyncio front is given it here: an event
loop runs in a thread, each call is run on it and waited for. Programs that a test starts use the
same, by the name of the front.
"""

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from rabbitdelay import Client, Worker, aio
from tests.support.waiting import patience, wait_until

Result = TypeVar("Result")
NAMES = ("sync", "aio")


class Front(ABC):
    """Makes clients and workers of one front."""

    name: str

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
        """Return a client, whose calls wait."""

    @abstractmethod
    def worker(self, url: str | None = None, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        """Return a worker, whose `run` waits."""

    @abstractmethod
    def run(self, worker: Worker, **options: Any) -> None:  # noqa: ANN401 - passed on
        """Run a worker as a program does: in the first thread, with signals."""

    @abstractmethod
    def close(self) -> None:
        """End it; what is left running is an error."""


class SyncFront(Front):
    """The sync front, as it is."""

    name = "sync"

    def client(self, url: str | None = None, **options: Any) -> Client:  # noqa: ANN401 - passed on
        """Return a client."""
        return Client(url, **options)

    def worker(self, url: str | None = None, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        """Return a worker."""
        return Worker(url, **options)

    def run(self, worker: Worker, **options: Any) -> None:  # noqa: ANN401 - passed on
        """Run a worker."""
        worker.run(**options)

    def close(self) -> None:
        """There is nothing to end."""


class AioFront(Front):
    """The asyncio front, on an event loop in a thread."""

    name = "aio"

    def __init__(self) -> None:
        self.loop = LoopThread()

    def client(self, url: str | None = None, **options: Any) -> Client:  # noqa: ANN401 - passed on
        """Return a client whose calls wait."""
        return cast("Client", BlockingClient(self.loop, aio.Client(url, **options)))

    def worker(self, url: str | None = None, **options: Any) -> Worker:  # noqa: ANN401 - passed on
        """Return a worker whose `run` waits."""
        return cast("Worker", Blocking(self.loop, aio.Worker(url, **options)))

    def run(self, worker: Worker, **options: Any) -> None:  # noqa: ANN401 - passed on
        """Run a worker on an event loop of its own."""
        asyncio.run(unwrapped(worker).run(**options))

    def close(self) -> None:
        """End the event loop."""
        self.loop.close()


def front_named(name: str) -> Front:
    """Return a front by its name."""
    return {"sync": SyncFront, "aio": AioFront}[name]()


class LoopThread:
    """An event loop in a thread. At its end no task may be left, and none may have failed."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        """What the event loop was told that nobody else was."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine, and wait for it; whoever waits no more cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop, when all tasks have ended."""
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
    """What is to be awaited, as it is when each call waits; all else is as it was."""

    def __init__(self, loop: LoopThread, awaited: Any) -> None:  # noqa: ANN401 - a client, a job ...
        self.loop = loop
        self.awaited = awaited

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever it has
        found = getattr(self.awaited, name)
        return self._waits(found) if inspect.iscoroutinefunction(found) else found

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

    def _waits(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - passed on
            return self._wrapped(self.loop.call(function(*map(unwrapped, arguments), **options)))

        return call

    def _wrapped(self, result: Any) -> Any:  # noqa: ANN401 - whatever was returned
        if isinstance(result, list):
            return [self._wrapped(one) for one in result]
        return Blocking(self.loop, result) if isinstance(result, aio.ReservedJob) else result


class BlockingClient(Blocking):
    """A client whose calls wait."""

    def put_nowait(self, *arguments: Any, **options: Any) -> Future[Any]:  # noqa: ANN401 - passed on
        """Put a job without waiting."""

        async def put() -> asyncio.Task[Any]:
            return self.awaited.put_nowait(*arguments, **options)  # type: ignore[no-any-return]

        async def result(task: asyncio.Task[Any]) -> Any:  # noqa: ANN401 - a job
            return await task

        return asyncio.run_coroutine_threadsafe(result(self.loop.call(put())), self.loop.loop)


def unwrapped(one: Any) -> Any:  # noqa: ANN401 - anything
    """What stands behind an object of these."""
    return one.awaited if isinstance(one, Blocking) else one
