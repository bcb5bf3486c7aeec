"""The broker in memory, for tests: no RabbitMQ, and no waiting, because its clock is virtual."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from rabbitdelay import Client, Worker, aio
from rabbitdelay.aio import awaiting
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.engine.flow import Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.models import Job
from rabbitdelay.testing import attachment
from rabbitdelay.testing.attachment import Changes, Detach, NewEngine
from rabbitdelay.testing.driver.endpoint import Endpoint
from rabbitdelay.testing.driver.links import Links
from rabbitdelay.testing.driver.network import Network
from rabbitdelay.testing.running_workers import RunningWorkers
from rabbitdelay.testing.stored_jobs import StoredJobs
from rabbitdelay.testing.time.pace import VirtualPace
from rabbitdelay.testing.time.timeline import Timeline

Result = TypeVar("Result")
AnyWorker = TypeVar("AnyWorker", Worker, aio.Worker)
AnyClient = TypeVar("AnyClient", Client, aio.Client)
NAMESPACE = "rabbitdelay"
ALARM = "low on memory"
CLOSE_SECONDS = 5.0


class MemoryBroker(Network):
    """A broker in memory whose clock moves only when a test moves it.

    Clients and workers are the same as with RabbitMQ. A call that waits, such as
    `client.pop(wait=10)`, moves the clock by itself when nothing else is left to do. In a
    coroutine, use `async with` and the verbs that begin with `aio_`.

    Args:
        start: Time at which the clock starts; now, by default.
        raise_errors: Whether what a handler raises is raised in the test, by the verb that moved
            the clock. Set it to False to test retries and buried jobs.
        duplicates: Share of jobs whose handler runs twice, as happens when a worker dies before its
            acknowledgement arrives.
        handler_seconds: Real seconds that a handler may run before the test fails.
    """

    def __init__(
        self,
        *,
        start: datetime | None = None,
        raise_errors: bool = True,
        duplicates: float = 0.0,
        handler_seconds: float = 30.0,
    ) -> None:
        began = datetime.now(UTC) if start is None else start
        timeline = Timeline(VirtualPace(began.timestamp()))
        self._endpoint = Endpoint(timeline)
        self._workers = RunningWorkers(timeline, duplicates=duplicates)
        self._raise_errors = raise_errors
        self._handler_seconds = handler_seconds
        self._clients: list[Client] = []
        self._aio_clients: list[aio.Client] = []
        self._attached: list[Detach] = []
        super().__init__(Links(self._endpoint), self._workers.watched)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if error is None:
            self._raise()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aio_close()
        if error is None:
            self._raise()

    # Clients and workers

    def client(self, **options: Any) -> Client:  # noqa: ANN401 - the options of Client
        """Return a client of this broker. It is closed with the broker."""
        client = Client(transport=self, **({"stabilise_seconds": 0} | options))
        self._clients.append(client)
        return client

    def aio_client(self, **options: Any) -> aio.Client:  # noqa: ANN401 - the options of aio.Client
        """Return an asyncio client of this broker. It is closed with the broker."""
        client = aio.Client(transport=self, **({"stabilise_seconds": 0} | options))
        self._aio_clients.append(client)
        return client

    def attach(self, client: AnyClient) -> AnyClient:
        """Make a client of the application use this broker until the end; return it."""
        self._attached.append(attachment.attach_client(client, *self._settings))
        if isinstance(client, aio.Client):
            self._aio_clients.append(client)
        else:
            self._clients.append(client)
        return client

    def run(self, worker: AnyWorker) -> AnyWorker:
        """Run a worker of the application on this broker until the end; return it.

        It runs in a thread, an asyncio worker as a task of the running event loop.
        """
        self._attached.append(attachment.attach_worker(worker, *self._settings))
        self._attached.append(attachment.attach_hook(worker, self._workers.note))
        self._workers.start(worker)
        if isinstance(worker, Worker):
            self.run_until_idle()
        return worker

    # Time

    @property
    def now(self) -> datetime:
        """The time on the clock of the broker."""
        return datetime.fromtimestamp(self.clock(), UTC)

    def advance(
        self,
        seconds: float | timedelta = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Move the clock, and run everything that becomes due meanwhile, in order.

        Return when nothing is left to do. Raise what a handler raised.
        """
        self._until_reached(self._begin(_span(seconds, minutes, hours, days)))

    def run_until_idle(self) -> None:
        """Run everything that is due, without moving the clock. Raise what a handler raised."""
        self.advance(0)

    async def aio_advance(
        self,
        seconds: float | timedelta = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Do what `advance` does, in a coroutine."""
        reached = self._begin(_span(seconds, minutes, hours, days))
        try:
            await awaiting.result_of(reached, self._handler_seconds)
        except TimeoutError:
            raise self._stuck() from None
        self._raise()

    async def aio_run_until_idle(self) -> None:
        """Do what `run_until_idle` does, in a coroutine."""
        await self.aio_advance(0)

    def sleep(self, seconds: float) -> None:
        """Block a handler or a test for a time on the clock of the broker."""
        self._wait_quietly(Future(), seconds)

    async def aio_sleep(self, seconds: float) -> None:
        """Suspend a coroutine for a time on the clock of the broker."""
        try:
            await self.wait_async(Wait(Future(), seconds))
        except TimeoutError:
            return

    # Jobs

    def jobs(self, topic: str, *, namespace: str = NAMESPACE) -> list[Job]:
        """Return the delayed, ready and reserved jobs of a topic, the first to become due first.

        In a coroutine, await `aio_run_until_idle()` first: this call does not run the event loop.
        """
        return self._ask(lambda: self._stored(namespace).waiting(topic))

    def buried(self, topic: str, *, namespace: str = NAMESPACE) -> list[BuriedJob]:
        """Return the buried jobs of a topic, the oldest first."""
        return self._ask(lambda: self._stored(namespace).buried(topic))

    # Faults

    def cut(self) -> None:
        """Cut all connections. Clients and workers connect again."""
        self.links.cut()

    @contextmanager
    def block(self, reason: str = ALARM) -> Iterator[None]:
        """Block publishers inside the block, as the broker does when it is low on memory."""
        self._ask(lambda: self._endpoint.sessions.alarm(reason))
        try:
            yield
        finally:
            self._ask(lambda: self._endpoint.sessions.alarm(None))

    def slow(self, seconds: float) -> None:
        """Delay everything that is sent from now on, in each direction."""
        self.links.delay_seconds = seconds

    # The end

    def close(self) -> None:
        """Stop the workers and close the clients."""
        for running in self._workers.stop():
            if running.task is None:
                self._wait_quietly(running.ended, CLOSE_SECONDS)
        for client in self._clients:
            client.close(CLOSE_SECONDS)
        self._end()

    async def aio_close(self) -> None:
        """Stop the workers and close the clients, in a coroutine."""
        for running in self._workers.stop():
            await asyncio.to_thread(self._wait_quietly, running.ended, CLOSE_SECONDS)
        for client in self._aio_clients:
            await client.close(CLOSE_SECONDS)
        await asyncio.to_thread(self.close)

    def _end(self) -> None:
        for detach in reversed(self._attached):
            detach()
        self._attached.clear()
        self._timeline.close()

    # Helpers

    @property
    def _settings(self) -> tuple[Changes, NewEngine]:
        """Settings of the application's clients and workers. New queues are safe at once here."""
        changes = {"url": None, "transport": self, "stabilise_seconds": 0}
        return changes, partial(ClientEngine.over, self)

    def _begin(self, span: timedelta) -> Future[None]:
        return self._timeline.advance(self.clock() + span.total_seconds())

    def _until_reached(self, reached: Future[None]) -> None:
        try:
            reached.result(self._handler_seconds)
        except TimeoutError:
            raise self._stuck() from None
        self._raise()

    def _stuck(self) -> RabbitDelayError:
        self._timeline.give_up()
        return RabbitDelayError(
            f"a handler has been running for {self._handler_seconds:g} s: the clock of the broker "
            "does not move while a handler runs; in a coroutine, use `await broker.aio_advance()`"
        )

    def _raise(self) -> None:
        """Raise the first error of a callback, a worker or a handler."""
        errors = [*self._timeline.take_errors(), *self._workers.take_errors()]
        if errors and self._raise_errors:
            raise errors[0]

    def _stored(self, namespace: str) -> StoredJobs:
        return StoredJobs(self._endpoint, Topology(namespace))

    def _ask(self, question: Callable[[], Result]) -> Result:
        """Ask in the place of the broker, when everything that was sent has arrived."""
        answer: Future[Result] = Future()
        answer.set_running_or_notify_cancel()
        place = self._endpoint.place
        self._timeline.post_last(place, lambda: answer.set_result(question()))
        return answer.result(self._handler_seconds)

    def _wait_quietly(self, future: Future[Any], seconds: float) -> None:
        """Wait on the clock of the broker, whether the future is done in time or not."""
        over: Future[None] = Future()
        future.add_done_callback(lambda _: over.set_result(None))
        try:
            self.wait(Wait(over, seconds))
        except TimeoutError:
            return


def _span(seconds: float | timedelta, minutes: float, hours: float, days: float) -> timedelta:
    more = timedelta(minutes=minutes, hours=hours, days=days)
    return more + (seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds))
