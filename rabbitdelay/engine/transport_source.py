"""Another way to the broker than a driver, with a time of its own: the broker in memory is one."""

from collections.abc import Sequence
from typing import Any, Protocol

from rabbitdelay.address import Address
from rabbitdelay.engine.flow import Wait
from rabbitdelay.engine.transport import Transport
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.system_time import TimeSource


class Waiter(Protocol):
    """Waits for futures where time passes differently than on the clock of the machine."""

    def wait(self, wait: Wait) -> Any:  # noqa: ANN401 - the result of the future
        """Block the thread until a future is done; raise TimeoutError after a time."""

    async def wait_async(self, wait: Wait) -> Any:  # noqa: ANN401 - the result of the future
        """Await a future; raise TimeoutError after a time."""


class TransportSource(Waiter, Protocol):
    """Replaces the drivers. `rabbitdelay.testing.MemoryBroker` is one."""

    clock: TimeSource
    """Returns the Unix time in seconds."""
    monotonic: TimeSource
    """Returns the seconds on a clock that is never set."""

    def locate(self, url: str | None) -> Sequence[Address]:
        """Return the addresses to connect to."""

    def new_transport(self, name: str, *, is_async: bool) -> Transport:
        """Return a transport: with `is_async`, on the running event loop, else on a thread.

        Its connections have this name.
        """

    def watch(self, executor: Executor) -> Executor:
        """Return an executor whose handlers are known to run, for a worker."""
