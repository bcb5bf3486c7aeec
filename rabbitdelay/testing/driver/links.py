"""The way from clients to the broker, with its connections and faults."""

from collections.abc import Iterator

from rabbitdelay.testing.driver.connection import MemoryConnection
from rabbitdelay.testing.driver.endpoint import Endpoint
from rabbitdelay.testing.driver.pipe import Pipe


class Links:
    """All connections that go the same way. Safe from any thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._connections: list[MemoryConnection] = []
        self._delay_seconds = 0.0
        self._is_silent = {"to_broker": False, "to_client": False}

    @property
    def connections(self) -> list[MemoryConnection]:
        """The connections that are not lost, in the order in which they were opened."""
        self._connections = [one for one in self._connections if not one.is_lost]
        return list(self._connections)

    @property
    def delay_seconds(self) -> float:
        """Added to each direction, for what is sent from now on."""
        return self._delay_seconds

    @delay_seconds.setter
    def delay_seconds(self, seconds: float) -> None:
        self._delay_seconds = seconds
        for connection in self.connections:
            for _, pipe in _pipes(connection):
                pipe.delay_seconds = seconds

    def add(self, connection: MemoryConnection) -> None:
        """Add a connection that is about to be opened."""
        self._connections.append(connection)
        for name, pipe in _pipes(connection):
            pipe.delay_seconds = self._delay_seconds
            if self._is_silent[name]:
                pipe.silence()

    def silence(
        self, *, to_broker: bool = True, to_client: bool = True, only: int | None = None
    ) -> None:
        """Stop the traffic in these directions without losing a connection.

        With `only`, the connection with this index is silenced, otherwise all, also future ones.
        """
        wanted = {"to_broker": to_broker, "to_client": to_client}
        connections = self.connections
        if only is None:
            self._is_silent = wanted
        else:
            connections = [connections[only]]
        for connection in connections:
            for name, pipe in _pipes(connection):
                if wanted[name]:
                    pipe.silence()

    def restore(self) -> None:
        """Restore the traffic, and deliver what was sent in the meantime."""
        self._is_silent = {"to_broker": False, "to_client": False}
        for connection in self.connections:
            for _, pipe in _pipes(connection):
                pipe.restore()

    def cut(self) -> None:
        """Cut every connection; new ones are accepted."""
        for connection in self.connections:
            connection.cut()


def _pipes(connection: MemoryConnection) -> Iterator[tuple[str, Pipe]]:
    yield "to_broker", connection.to_broker
    yield "to_client", connection.to_client
