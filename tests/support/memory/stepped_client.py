"""A client on a broker in memory whose calls block no thread.

A call that waits in a thread lets the clock of the broker move. A stepped call does not: the test
moves the clock and decides what happens while the call waits.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Flow, Sleep, Step, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.executors.blocking import drive
from rabbitdelay.testing import MemoryBroker

Result = TypeVar("Result")


class SteppedCall(Generic[Result]):
    """A call that goes on when the test says so."""

    def __init__(self, broker: MemoryBroker, flow: Flow[Result]) -> None:
        self._broker = broker
        self._flow = flow
        self._step: Step | None = None
        self._began_at = 0.0
        self._outcome: Future[Result] = Future()
        self._send(None)

    @property
    def is_over(self) -> bool:
        """Whether the call has returned or raised."""
        return self._outcome.done()

    @property
    def result(self) -> Result:
        """The result of the call; raises the error that the call has raised."""
        return self._outcome.result(0)

    def go_on(self) -> bool:
        """Go on as far as the call does not have to wait; return whether that was any step."""
        has_moved = False
        while not self.is_over and self._is_ready():
            self._resume()
            has_moved = True
        return has_moved

    def interrupt(self, error: BaseException) -> None:
        """Raise an error in the call, as a signal handler does in a thread that waits."""
        self._throw(error)

    def _is_ready(self) -> bool:
        step = self._step
        seconds = step.seconds if isinstance(step, Wait | Sleep) else 0.0
        is_over = seconds is not None and self._broker.monotonic() >= self._began_at + seconds
        return is_over or (isinstance(step, Wait) and step.future.done())

    def _resume(self) -> None:
        step = self._step
        if not isinstance(step, Wait):
            self._send(None)
        elif not step.future.done():
            self._throw(TimeoutError())
        elif (error := step.future.exception()) is not None:
            self._throw(error)
        else:
            self._send(step.future.result())

    def _send(self, value: object) -> None:
        try:
            self._begin(self._flow.send(value))
        except StopIteration as stop:
            self._outcome.set_result(stop.value)
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._outcome.set_exception(error)

    def _throw(self, error: BaseException) -> None:
        try:
            self._begin(self._flow.throw(error))
        except StopIteration as stop:
            self._outcome.set_result(stop.value)
        except BaseException as raised:  # noqa: BLE001 - raised by `result`
            self._outcome.set_exception(raised)

    def _begin(self, step: Step) -> None:
        self._step, self._began_at = step, self._broker.monotonic()


class SteppedPop(SteppedCall[tuple[Consumer, list[Lease]]]):
    """A call of pop."""

    @property
    def ids(self) -> list[str]:
        """The ids of the popped jobs."""
        return [lease.job.id for lease in self.leases]

    @property
    def leases(self) -> list[Lease]:
        """The leases of the popped jobs."""
        return self.result[1]

    def finish(self) -> None:
        """Finish the popped jobs."""
        consumer, leases = self.result
        for lease in leases:
            consumer.settlement.finish(lease)


class SteppedClient:
    """A client whose calls wait only as long as the test wants."""

    def __init__(self, broker: MemoryBroker, **options: Any) -> None:  # noqa: ANN401 - settings
        settings = ClientSettings(transport=broker, **({"stabilise_seconds": 0} | options))
        self._broker = broker
        self._engine = ClientEngine.over(broker, settings, is_async=False)
        self._calls: list[SteppedPop] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        drive(self._engine.close(1.0), self._broker)

    def pop(
        self, topics: str | Sequence[str], most: int | None = None, wait: float | None = 0
    ) -> SteppedPop:
        """Begin to pop; go on with `run` or `advance`."""
        call = SteppedPop(self._broker, self._engine.pop(topics, most, wait))
        self._calls.append(call)
        return call

    def close(self) -> SteppedCall[None]:
        """Begin to close the client."""
        return SteppedCall(self._broker, self._engine.close(1.0))

    def run(self) -> None:
        """Run everything that needs no time."""
        self._broker.run_until_idle()
        while sum(call.go_on() for call in self._calls):
            self._broker.run_until_idle()

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self._broker.advance(seconds)
        self.run()
