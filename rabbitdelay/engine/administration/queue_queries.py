"""Short queries about exchanges and queues, over a connection that is already open."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from rabbitdelay.core.administration.counts import QueueCount
from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.engine.connection import FirstConnection
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Channel, Closed, Connection, Then
from rabbitdelay.errors import ConnectionFailed
from rabbitdelay.system_time import TimeSource

Answer = TypeVar("Answer")
Ask = Callable[[Channel, Callable[[Answer], None]], None]
AGAIN_SECONDS = 0.25
"""Interval of retries of a query that lost its connection."""
AT_ONCE = 32
"""Maximum number of queues that are counted concurrently."""


class QueryConnection(Protocol):
    """Provides the connection for queries: a consumer, or a side connection."""

    @property
    def first(self) -> FirstConnection:
        """The state of the first connection."""

    @property
    def connection(self) -> Connection | None:
        """The open connection; None without one. Only on the transport's thread."""

    @property
    def monotonic(self) -> TimeSource:
        """Returns the seconds on the transport's monotonic clock."""

    def call(self, function: Then) -> bool:
        """Run a function on the transport's thread."""


class QueueQueries:
    """Runs each query on a channel of its own, because a negative answer closes the channel."""

    def __init__(self, connection: QueryConnection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self.monotonic = connection.monotonic

    def is_there(self, exchange: str) -> Flow[bool]:
        """Whether an exchange exists."""

        def ask(channel: Channel, answered: Callable[[bool], None]) -> None:
            channel.look(exchange, lambda: answered(True))  # noqa: FBT003 - the answer

        return (yield from self._ask(ask)) is not None

    def count(self, queue: str) -> Flow[QueueCount | None]:
        """Count the messages and consumers of a queue; None if the queue does not exist."""
        return self._ask(_counting(queue))

    def count_all(self, queues: Iterable[str]) -> Flow[dict[str, QueueCount | None]]:
        """Count many queues, several concurrently."""
        names = list(dict.fromkeys(queues))
        found: dict[str, QueueCount | None] = {}
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            asked = [(name, self._begin(_counting(name))) for name in some]
            for name, future in asked:
                found[name] = yield from self._wait(_counting(name), future)
        return found

    def purge(self, queue: str) -> Flow[int | None]:
        """Purge a queue; return the number of purged messages, or None if it does not exist."""

        def ask(channel: Channel, answered: Callable[[int], None]) -> None:
            channel.purge(queue, answered)

        return self._ask(ask)

    def _ask(self, ask: Ask[Answer]) -> Flow[Answer | None]:
        return self._wait(ask, self._begin(ask))

    def _begin(self, ask: Ask[Answer]) -> Future[Answer | None]:
        future: Future[Answer | None] = Future()
        self._connection.call(partial(self._send, ask, future))
        return future

    def _wait(self, ask: Ask[Answer], future: Future[Answer | None]) -> Flow[Answer | None]:
        deadline = self._connection.monotonic() + self._timeout
        while True:
            with suppress(TimeoutError):
                answer: Answer | None = yield Wait(future, AGAIN_SECONDS)
                return answer
            if self._connection.monotonic() >= deadline:
                break
            self._connection.call(partial(self._send, ask, future))
        raise self._connection.first.error or ConnectionFailed("the broker does not answer")

    def _send(self, ask: Ask[Answer], future: Future[Answer | None]) -> None:
        connection = self._connection.connection
        if connection is not None and connection.is_open and not future.done():
            connection.open_channel(partial(_opened, ask, future))


def _counting(queue: str) -> Ask[QueueCount]:
    def ask(channel: Channel, answered: Callable[[QueueCount], None]) -> None:
        channel.count(queue, lambda ready, consumers: answered(QueueCount(ready, consumers)))

    return ask


def _opened(ask: Ask[Answer], future: Future[Answer | None], channel: Channel) -> None:
    def closed(_channel: Channel, closed: Closed) -> None:
        if future.done():
            return
        if closed.code == reply_codes.NOT_FOUND:
            future.set_result(None)
        else:
            future.set_exception(closed.error())

    def answered(answer: Answer) -> None:
        channel.close()
        if not future.done():
            future.set_result(answer)

    channel.on_closed(closed)
    ask(channel, answered)
