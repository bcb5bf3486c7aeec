"""A separate connection for one task, closed afterwards.

Administration publishes, declares and deletes. On a separate connection, an alarm or a refusal does
not delay the jobs of the same client.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar

from rabbitdelay.address import Address
from rabbitdelay.core.topology.setup import Answers, Round
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.connection import Connector, FirstConnection
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.topology.declarer import Declarer, OnRound
from rabbitdelay.engine.transport import Connection, Then, Transport, nothing
from rabbitdelay.errors import BrokerBlocked, ConnectionFailed, OutcomeUnknown

Result = TypeVar("Result")
Conversation = Generator[Round, Answers, Result]
Done = Callable[[Result | Exception], None]


class SideConnection:
    """Runs a task on one connection. The task fails if the connection is lost."""

    def __init__(self, transport: Transport, addresses: Sequence[Address]) -> None:
        self.monotonic = transport.monotonic
        """Returns the seconds on the transport's monotonic clock."""
        self.first = FirstConnection(transport.monotonic)
        self.is_blocked = False
        """Whether the broker blocks publishing on this connection."""
        self.broker_version = ""
        """Version of RabbitMQ; empty if the broker does not announce it."""
        self._connector = Connector(transport, addresses, self)
        self._fail: Callable[[Exception], None] = nothing

    @property
    def connection(self) -> Connection | None:
        """The open connection; None without one. Only on the transport's thread."""
        return self._connector.connection

    @property
    def address(self) -> Address:
        """The address of the current connection."""
        return self._connector.address

    def call(self, function: Then) -> bool:
        """Run a function on the transport's thread; return False if the thread has ended."""
        return self._connector.call(function)

    def use(self, task: Flow[Result], connect_timeout: float) -> Flow[Result]:
        """Connect, run a task, and close."""
        try:
            self._connector.start()
            yield from self.first.wait(connect_timeout)
            result = yield from task
        except GeneratorExit:  # a signal handler raised in the caller, so waiting is impossible
            self.close_soon(0)
            raise
        except BaseException:
            yield from self._close()
            raise
        yield from self._close()
        return result

    def converse(
        self,
        begin: Callable[[Connection], Conversation[Result]],
        timeout: float,
        on_round: OnRound = nothing,
    ) -> Flow[Result]:
        """Run a conversation with the broker. The timeout restarts with each answer."""
        drivers: list[Declarer[Result]] = []

        def start(connection: Connection, done: Done[Result]) -> None:
            timing = self._connector
            drivers.append(Declarer(connection, begin(connection), done, timing, on_round))
            drivers[0].start()

        future = self._start(start)
        deadline = self.monotonic() + timeout
        while True:
            try:
                result: Result = yield Wait(future, max(0.0, deadline - self.monotonic()))
            except TimeoutError:
                deadline = max((driver.answered_at + timeout for driver in drivers), default=0.0)
                if self.monotonic() < deadline:
                    continue
                self.call(partial(_abandon, drivers))
                raise self._unanswered(timeout) from None
            return result

    def ask(
        self, question: Callable[[Connection, Done[Result]], None], timeout: float
    ) -> Flow[Result]:
        """Ask one question.

        Raises:
            TimeoutError: The broker does not answer in time.
        """
        result: Result = yield Wait(self._start(question), timeout)
        return result

    # Called by the transport

    def connection_opened(self, connection: Connection) -> None:
        """Start the task."""
        self.broker_version = connection.broker_version
        connection.on_blocked(self._blocked)
        self.first.opened()

    def connection_failed(self, error: ConnectionFailed) -> None:
        """Fail the current question, because the connection was lost or refused."""
        self.first.failed(error)
        self._fail(error)

    def connection_closed(self) -> None:
        """Fail the current question, because the transport has ended."""
        self.first.ended()
        self._fail(ConnectionFailed("the connection was closed"))

    def close_soon(self, flush_seconds: float) -> None:  # noqa: ARG002 - there is nothing to flush
        """Close in the background."""
        self._connector.call(self._begin_close)

    def abandon(self) -> None:
        """Forget the parent's connection in a forked child, without sending anything on it."""
        self._connector.transport.abandon()

    def _start(self, question: Callable[[Connection, Done[Result]], None]) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        done: Done[Result] = partial(_resolve, future)

        def start() -> None:
            self._fail = done
            if self.connection is None or not self.connection.is_open:
                done(self.first.error or ConnectionFailed("the connection is lost"))
            else:
                question(self.connection, done)

        if not self.call(start):
            done(self.first.error or ConnectionFailed("the connection is closed"))
        return future

    def _blocked(self, reason: str | None) -> None:
        self.is_blocked = reason is not None

    def _unanswered(self, timeout: float) -> OutcomeUnknown:
        if self.is_blocked:
            return BrokerBlocked(
                f"{self.address}: the broker blocks publishers while a memory or disk alarm lasts",
                sent=True,
            )
        return OutcomeUnknown(
            f"{self.address}: the broker has not answered for {timeout:g} s", sent=True
        )

    def _close(self) -> Flow[None]:
        self.close_soon(0)
        yield from self._connector.until_ended(0)

    def _begin_close(self) -> None:
        is_blocked = self.is_blocked
        self._connector.close(
            process_lifetime.UNANSWERED_SECONDS if is_blocked else process_lifetime.CLOSE_SECONDS
        )


def _resolve(future: Future[Result], result: Result | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _abandon(drivers: Sequence[Declarer[Result]]) -> None:
    for driver in drivers:
        driver.abandon()
