"""The broker in memory as a back end of the conformance suite.

Clients and workers use it through the transport in memory. What a test does besides, with pika,
goes through a TCP server to the same broker. Time passes as on the clock of the machine.
"""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from rabbitdelay.engine.work.run import Executor
from rabbitdelay.testing.driver.endpoint import Endpoint
from rabbitdelay.testing.driver.links import Links
from rabbitdelay.testing.driver.network import Network
from rabbitdelay.testing.driver.watched_executor import WatchedExecutor
from rabbitdelay.testing.time.pace import RealPace
from rabbitdelay.testing.time.timeline import Timeline
from tests.support.memory.amqp_server import AmqpServer


class MemoryBackEnd:
    """A broker in memory."""

    def __init__(self) -> None:
        self._timeline = Timeline(RealPace())
        self._endpoint = Endpoint(self._timeline)
        links = Links(self._endpoint)
        self._network = Network(links, self._watched)
        self._server = AmqpServer(self._endpoint)
        self._network.ports[self._server.port] = links

    def _watched(self, executor: Executor) -> Executor:
        return WatchedExecutor(self._timeline, executor, is_run_twice=lambda: False)

    @property
    def url(self) -> str:
        """The AMQP URL of the broker."""
        return _url(self._server.port)

    @property
    def options(self) -> dict[str, Any]:
        """The options of clients and workers that use this broker."""
        return {"transport": self._network}

    def proxy(self, _url: str, *, delay_seconds: float = 0.0) -> AbstractContextManager[Any]:
        """Return another way to the broker, for simulating network faults."""
        return MemoryProxy(self._network, delay_seconds)

    def close(self) -> None:
        """End the broker. A callback that has failed is an error."""
        self._server.close()
        self._timeline.close()
        assert self._timeline.errors == []


class MemoryProxy:
    """The proxy of tests/support/brokers/proxy.py for connections in memory."""

    _ports = 0

    def __init__(self, network: Network, delay_seconds: float) -> None:
        self._network = network
        self._links = Links(network.links.endpoint)
        self._links.delay_seconds = delay_seconds
        MemoryProxy._ports += 1
        self._port = MemoryProxy._ports

    def __enter__(self) -> Self:
        self._network.ports[self._port] = self._links
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del self._network.ports[self._port]
        self._links.cut()

    @property
    def url(self) -> str:
        """The AMQP URL of the broker, by this way."""
        return _url(self._port)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._links.connections)

    @property
    def delay_seconds(self) -> float:
        """Added to each direction."""
        return self._links.delay_seconds

    @delay_seconds.setter
    def delay_seconds(self, seconds: float) -> None:
        self._links.delay_seconds = seconds

    def silence(self, **options: Any) -> None:  # noqa: ANN401 - passed on
        """Stop the traffic until `restore`, without resetting a connection."""
        self._links.silence(**options)

    def restore(self) -> None:
        """Restore the traffic, and deliver what was sent in the meantime."""
        self._links.restore()

    def cut(self) -> None:
        """Reset every connection."""
        self._links.cut()


def _url(port: int) -> str:
    return f"amqp://guest:guest@127.0.0.1:{port}/"
