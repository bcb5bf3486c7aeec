"""The channels of a consuming connection: whose they are, and what is lost with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.acks.ack_buffer import AckBuffer
from rabbitdelay.engine.acks.ack_proof import AckProof
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.engine.settle.loss_callbacks import LossCallbacks
from rabbitdelay.engine.transport import Channel, Closed, OnInbound, Then

OnChannelLost = Callable[[int, Exception, Sequence[Lease]], None]


@dataclass(slots=True)
class _Entry:
    channel: Channel
    on_inbound: OnInbound
    make_room: Then | None


class ConsumerChannels:
    """The open channels of a consuming connection. On the transport's thread."""

    def __init__(
        self,
        connector: Connector,
        ledger: LeaseLedger,
        acks: AckBuffer,
        loss_callbacks: LossCallbacks,
        on_lost: OnChannelLost,
    ) -> None:
        self._connector = connector
        self._ledger = ledger
        self._acks = acks
        self._loss_callbacks = loss_callbacks
        self._on_lost = on_lost
        """Called with each channel that the broker closes, and the leases that it had."""
        self._entries: dict[int, _Entry] = {}
        self._ack_proof: AckProof | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def open(
        self,
        opened: Callable[[Channel], None],
        on_inbound: OnInbound,
        prefetch: int | None = None,
        make_room: Then | None = None,
    ) -> None:
        """Open a channel whose deliveries are passed to `on_inbound`.

        `make_room` is called for each job of the channel that waits to be published. Without a
        connection nothing happens: the caller is notified of the next one.
        """

        def ready(channel: Channel) -> None:
            self._entries[channel.number] = _Entry(channel, on_inbound, make_room)
            self._acks.opened(channel.number, prefetch)
            channel.on_closed(self._closed)
            opened(channel)

        connection = self._connector.open_connection
        if connection is not None:
            connection.open_channel(ready)

    def inbound(self, found: Delivery | GetEmpty) -> None:
        """Pass on what was received on a channel."""
        entry = self._entries.get(found.channel)
        if entry is not None:
            entry.on_inbound(found)

    def make_room(self, lease: Lease) -> None:
        """Prefetch another job in place of one that waits to be published. From any thread."""
        self._connector.call(partial(self._make_room, lease.channel))

    def lose(self, channel: Channel | None) -> list[Lease]:
        """End the leases of a channel that this side closes: the broker requeues its jobs."""
        return [] if channel is None else self._lose(channel.number)

    def lose_all(self) -> list[Lease]:
        """End all leases, because the connection is lost."""
        return self._lose(None)

    def prove(self, topology: Topology, ended: Then) -> AckProof:
        """Have the broker prove that it has all settlements; call `ended` then."""
        ack_proof = self._ack_proof = AckProof(self._connector.send, ended)
        for number, topics in self._acks.unproven():
            entry = self._entries[number]
            entry.on_inbound = ack_proof.inbound
            for topic in topics:
                ack_proof.ask(entry.channel, topology.ready_queue(topic))
        ack_proof.end_if_complete()
        return ack_proof

    def _make_room(self, number: int) -> None:
        entry = self._entries.get(number)
        if entry is not None and entry.make_room is not None:
            entry.make_room()

    def _closed(self, channel: Channel, closed: Closed) -> None:
        lost = self._lose(channel.number)
        self._on_lost(channel.number, closed.error(), lost)

    def _lose(self, number: int | None) -> list[Lease]:
        lost = self._ledger.lose(number)
        if number is None:
            self._entries.clear()
        else:
            self._entries.pop(number, None)
        self._loss_callbacks.call(lost)
        if self._ack_proof is not None:
            self._ack_proof.lose(number)
        return lost
