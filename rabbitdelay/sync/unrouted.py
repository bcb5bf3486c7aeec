"""The `unrouted` queue: looking into it, sending its jobs on, and dropping them."""

from pika import BlockingConnection

from rabbitdelay.core.jobs.envelope import Message, fresh_headers
from rabbitdelay.core.parked import unrouted
from rabbitdelay.core.parked.unrouted import Unrouted
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.sync.parked import Chooser, Copy, OnTried, ParkedQueue, SentOn


class UnroutedQueue(ParkedQueue[Unrouted]):
    """The queue of what could not be routed, over one connection."""

    def __init__(
        self,
        connection: BlockingConnection,
        topology: Topology,
        settle_seconds: float | None = None,
        *,
        may_declare: bool = True,
    ) -> None:
        name = topology.unrouted
        super().__init__(connection, topology, name, settle_seconds, may_declare=may_declare)

    def retry(
        self,
        choice: Chooser[Unrouted],
        *,
        limit: int | None = None,
        on_tried: OnTried[Unrouted] | None = None,
    ) -> SentOn:
        """Send them on with the rest of their delay; topics that are missing are made.

        `on_tried` is told of each, and whether it was sent on.
        """
        return self._send_on(choice, limit, on_tried)

    def _read(self, exchange: str, routing_key: str, message: Message) -> Unrouted:
        return unrouted.read(self._topology, exchange, routing_key, message)

    def _copy(self, found: Unrouted, now_ms: int) -> Copy | None:  # noqa: ARG002 - needs no clock
        way = unrouted.way_on(self._topology, found)
        return None if way is None else Copy(way, fresh_headers(found.message.headers))

    def _why_missing(self) -> str:
        namespace = self._topology.namespace
        return f"nothing was ever put in namespace {namespace} on this broker"
