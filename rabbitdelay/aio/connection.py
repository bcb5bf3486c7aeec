"""A connection of aio-pika's: our own, or one that the application has lent us."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

import pamqp.frame
from aio_pika.abc import AbstractConnection

from rabbitdelay.aio import aiormq_internals
from rabbitdelay.aio.aiormq_internals import AiormqConnection
from rabbitdelay.aio.channel import LoopChannel
from rabbitdelay.aio.frame_reader import FrameTransport
from rabbitdelay.core.amqp.decode import Deliveries, Other
from rabbitdelay.engine.transport import Channel, OnInbound, Then, nothing

LOOK_SECONDS = 0.25
"""How often it is looked whether the broker blocks who publishes: aiormq tells nobody."""
BLOCKED = "an alarm of the broker, for memory or disk"


class LoopConnection(ABC):
    """An open connection, which is closed with us or not."""

    def __init__(
        self, owner: AbstractConnection, aiormq_connection: AiormqConnection, close: Then
    ) -> None:
        self.owner = owner
        self.aiormq_connection = aiormq_connection
        self._close = close
        self._loop = asyncio.get_running_loop()
        self._channels: dict[int, LoopChannel] = {}
        self._numbers = aiormq_internals.channels(aiormq_connection)
        self._blocked: Callable[[str | None], None] = nothing
        self._is_blocked = False
        self._is_lost = False
        aiormq_internals.closing(aiormq_connection).add_done_callback(self._lost)

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return not (self._is_lost or self.aiormq_connection.is_closed)

    @property
    def frame_max(self) -> int:
        """The largest frame, as agreed with the broker."""
        return aiormq_internals.frame_max(self.aiormq_connection)

    @property
    def broker_version(self) -> str:
        """The version of RabbitMQ."""
        return aiormq_internals.broker_version(self.aiormq_connection)

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Call this when the broker blocks who publishes, and when it does no more."""
        self._blocked = blocked
        self._look()

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel, on the lowest number that is free."""
        number = 1
        while number in self._numbers:
            number += 1
        channel = self._channels[number] = LoopChannel(self, number)
        self._numbers[number] = channel
        channel.open(opened)

    def channel_gone(self, number: int) -> None:
        """Both sides have closed it: its number is free."""
        channel = self._channels.pop(number, None)
        if self._numbers.get(number) is channel:  # not every aiormq sees to that
            self._numbers.pop(number, None)

    def close(self) -> None:
        """Close it, or give it back."""
        for channel in self._channels.values():
            channel.close()
        self._close()

    @abstractmethod
    def cut(self) -> None:
        """End it without waiting for the broker, if it is ours."""

    @abstractmethod
    def send_frames(self, data: bytes) -> None:
        """Send whole frames, on any of its channels."""

    @abstractmethod
    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Hand over messages; `on_read` is called after all that came at once."""

    @abstractmethod
    def delivered(self, number: int, frame: object) -> None:
        """A frame of a delivery has come by way of aiormq."""

    def _lost(self, _closing: object) -> None:
        self._is_lost = True
        for channel in self._channels.values():
            channel.is_open = False

    def _look(self) -> None:
        if not self.is_open:
            return
        is_blocked = not aiormq_internals.is_done_at_once(self.aiormq_connection)
        if is_blocked != self._is_blocked:
            self._is_blocked = is_blocked
            self._blocked(BLOCKED if is_blocked else None)
        self._loop.call_later(LOOK_SECONDS, self._look)


class OwnConnection(LoopConnection):
    """A connection of our own: deliveries are read, and frames written, past aio-pika."""

    def __init__(
        self,
        owner: AbstractConnection,
        aiormq_connection: AiormqConnection,
        transport: FrameTransport,
        close: Then,
    ) -> None:
        super().__init__(owner, aiormq_connection, close)
        self._transport = transport

    def cut(self) -> None:
        """Close the socket without waiting for the broker."""
        if self._transport.writer is not None:
            self._transport.writer.transport.abort()

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Hand over messages."""
        reader = self._transport.reader
        reader.on_inbound, reader.on_read = on_inbound, on_read

    def delivered(self, number: int, frame: object) -> None:
        """None comes this way."""

    def send_frames(self, data: bytes) -> None:
        """Send whole frames, at once: a drain for each costs more than it saves."""
        writer = self._transport.writer
        if writer is not None and self.is_open:
            with suppress(RuntimeError):  # aiormq ends it, and will tell
                writer.write(data)


class LentConnection(LoopConnection):
    """The application's own connection: it goes on when we are closed."""

    def __init__(
        self, owner: AbstractConnection, aiormq_connection: AiormqConnection, close: Then
    ) -> None:
        super().__init__(owner, aiormq_connection, close)
        self._on_inbound: OnInbound = nothing
        self._on_read: Then = nothing
        self._deliveries = Deliveries()
        self._unsent: list[bytes] = []
        self._is_sending = False

    def cut(self) -> None:
        """Do nothing: the connection is the application's."""

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Hand over messages."""
        self._on_inbound, self._on_read = on_inbound, on_read

    def delivered(self, number: int, frame: object) -> None:
        """A frame that aiormq has decoded: the same reader takes it as for our own connections."""
        data = pamqp.frame.marshal(frame, number)  # type: ignore[arg-type] # any frame
        for found in self._deliveries.feed(data):
            if not isinstance(found, Other):
                self._on_inbound(found)
                self._on_read()

    def send_frames(self, data: bytes) -> None:
        """Send whole frames, through aiormq's own queue: as one piece what comes at once."""
        self._unsent.append(data)
        if not self._is_sending:
            self._is_sending = True
            self._loop.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._unsent and self.is_open:
                pieces, self._unsent = self._unsent, []
                await aiormq_internals.write_bytes(self.aiormq_connection, b"".join(pieces))
        finally:
            self._is_sending = False
