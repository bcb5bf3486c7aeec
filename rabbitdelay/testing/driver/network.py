"""Addresses of brokers in memory."""

from collections.abc import Callable, Sequence

from rabbitdelay import address
from rabbitdelay.address import Address
from rabbitdelay.engine.transport import Transport
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.testing.driver.links import Links
from rabbitdelay.testing.driver.transport import MemoryTransport
from rabbitdelay.testing.time.waits import Waits

HOST = "memory"
URL = f"amqp://{HOST}"


class Network(Waits):
    """Leads every address to one broker, until ports are given."""

    def __init__(self, links: Links, watch: Callable[[Executor], Executor]) -> None:
        super().__init__(links.endpoint.timeline)
        self.watch = watch
        self.links = links
        self.ports: dict[int, Links] = {}
        """The ways to the broker by port. No other address leads anywhere, unless this is empty."""
        timeline = links.endpoint.timeline
        self.clock, self.monotonic = timeline.time, timeline.monotonic

    def locate(self, url: str | None) -> Sequence[Address]:
        """Return the addresses to connect to."""
        return address.parse_all(url or URL)

    def new_transport(self, name: str, *, is_async: bool) -> Transport:
        """Return a transport: with `is_async`, on the running event loop, else on a thread."""
        timeline = self.links.endpoint.timeline
        return MemoryTransport(name, timeline, self._find, is_async=is_async)

    def _find(self, wanted: Address) -> Links | None:
        if wanted.host == HOST or not self.ports:
            return self.links
        return self.ports.get(wanted.port)
