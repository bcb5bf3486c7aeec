"""A connection of aio-pika: the client's own, or one lent by the application."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from aio_pika.abc import AbstractConnection

from rabbitdelay.aio.driver import aiormq_internals
from rabbitdelay.aio.driver.aiormq_internals import AiormqConnection, FrameReceiver
from rabbitdelay.aio.driver.channel import LoopChannel
from rabbitdelay.aio.driver.frame_reader import FrameTransport, SharedReader
from rabbitdelay.core.amqp.decode import Deliveries, Other, Returned
from rabbitdelay.engine.transport import Channel, OnInbound, Then, nothing

LOOK_SECONDS = 0.25
"""Seconds between checks for blocked publishers, because aiormq has no callback for it."""
BLOCKED = "memory or disk alarm"


class LoopConnection(ABC):
    """An open connection. Subclasses decide whether closing the client closes it."""

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
        """Whether the connection can be used."""
        return not (self._is_lost or self.aiormq_connection.is_closed)

    @property
    def frame_max(self) -> int:
        """The maximum frame size negotiated with the broker, in bytes."""
        return aiormq_internals.frame_max(self.aiormq_connection)

    @property
    def broker_version(self) -> str:
        """The version of RabbitMQ, such as `4.3.6`; empty if the broker does not report one."""
        return aiormq_internals.broker_version(self.aiormq_connection)

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Register a callback, given the reason when the broker blocks publishers, then None."""
        self._blocked = blocked
        self._look()

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel with the lowest free number."""
        number = 1
        while number in self._numbers:
            number += 1
        channel = self._channels[number] = LoopChannel(self, number)
        self._numbers[number] = channel
        channel.open(opened)

    def channel_gone(self, number: int) -> None:
        """Free the number of a channel that both sides have closed."""
        channel = self._channels.pop(number, None)
        if self._numbers.get(number) is channel:  # not every version of aiormq does so
            self._numbers.pop(number, None)

    def close(self) -> None:
        """Close the channels, then close the connection or return it to the application."""
        for channel in self._channels.values():
            channel.close()
        self._close()

    @abstractmethod
    def cut(self) -> None:
        """Drop the connection without waiting for the broker, unless the application lent it."""

    @abstractmethod
    def send_frames(self, data: bytes) -> None:
        """Send complete frames, which may belong to any channel of the connection."""

    @abstractmethod
    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Pass on each message; call `on_read` after all messages that arrived together."""

    def _take_returned(self, returned: Returned) -> None:
        channel = self._channels.get(returned.channel)
        if channel is not None:
            channel.returned(returned)

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
    """The client's own connection. Deliveries and published frames bypass aio-pika."""

    def __init__(
        self,
        owner: AbstractConnection,
        aiormq_connection: AiormqConnection,
        transport: FrameTransport,
        close: Then,
    ) -> None:
        super().__init__(owner, aiormq_connection, close)
        self._transport = transport
        transport.reader.on_returned = self._take_returned

    def cut(self) -> None:
        """Close the socket without waiting for the broker."""
        if self._transport.writer is not None:
            self._transport.writer.transport.abort()

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Pass on each message; call `on_read` after all messages that arrived together."""
        reader = self._transport.reader
        reader.on_inbound, reader.on_read = on_inbound, on_read

    def send_frames(self, data: bytes) -> None:
        """Send complete frames at once, without a drain, which would cost more than it saves."""
        writer = self._transport.writer
        if writer is not None and self.is_open:
            with suppress(RuntimeError):  # aiormq is closing the connection and will report that
                writer.write(data)


class LentConnection(LoopConnection):
    """A connection lent by the application, which stays open when the client is closed."""

    def __init__(
        self,
        owner: AbstractConnection,
        aiormq_connection: AiormqConnection,
        receiver: FrameReceiver,
        close: Then,
    ) -> None:
        super().__init__(owner, aiormq_connection, close)
        self._receiver = receiver
        self._reader: SharedReader | None = None
        self._on_inbound: OnInbound = nothing
        self._on_read: Then = nothing
        self._deliveries = Deliveries()
        self._unsent: list[bytes] = []
        self._is_sending = False

    def cut(self) -> None:
        """Do nothing, because the connection belongs to the application."""

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Pass on each message; call `on_read` after all messages that arrived together."""
        self._on_inbound, self._on_read = on_inbound, on_read

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel, and take its deliveries before aiormq sees them."""

        def reading(channel: Channel) -> None:
            # aiormq has just passed on the broker's reply, and reads the next frame after this.
            self._reader = SharedReader.of(self._receiver)
            self._reader.add(channel.number, self._take)
            opened(channel)

        super().open_channel(reading)

    def channel_gone(self, number: int) -> None:
        """Free the number of a channel that both sides have closed."""
        super().channel_gone(number)
        if self._reader is not None:
            self._reader.remove(number)

    def _take(self, frame: bytes) -> bytes:
        """Handle a frame of our channels; return the bytes that aiormq reads in its place."""
        for found in self._deliveries.feed(frame):
            if isinstance(found, Other):
                return found.frame
            if isinstance(found, Returned):
                self._take_returned(found)
                continue
            self._on_inbound(found)
            self._on_read()
        return b""

    def send_frames(self, data: bytes) -> None:
        """Queue complete frames for aiormq's writer, joined if they are sent together."""
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
