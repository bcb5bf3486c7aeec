"""Read messages before aio-pika sees them: deliveries, and those that the broker returns.

aiormq awaits three times per frame, and creates three objects and a task per delivery. A header
that it cannot decode closes the connection, after every reconnect, and one that it can decode may
be another one when it is encoded again. All other frames are passed on.
"""

import asyncio
import time
from collections.abc import Callable
from struct import Struct
from typing import Any

import pamqp.frame
from aiormq.exceptions import AMQPError, ConnectionClosed, IncompatibleProtocolError
from pamqp import commands as spec
from yarl import URL

from rabbitdelay.address import Address
from rabbitdelay.aio.driver.aiormq_internals import FrameReceiver, TransportFactory
from rabbitdelay.core.amqp.decode import Deliveries, Other, Returned
from rabbitdelay.engine.transport import OnInbound, Then, nothing

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CLOSE, CLOSE_AT = b"\x00\x0a\x00\x32", 7
"""The method id of Connection.Close, and its offset after the frame header."""
_START = Struct(">BHI")
"""The kind, the channel and the size of a frame."""
TELL_SECONDS = 1.0
"""Seconds between heartbeats fed to aiormq, because it does not see deliveries."""


class FrameReader(asyncio.StreamReader):
    """A stream reader that takes deliveries out of the bytes fed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_inbound: OnInbound = nothing
        self.on_read: Then = nothing
        self.on_returned: Callable[[Returned], None] = nothing
        self._has_heard = False
        """Whether a complete frame has arrived, which shows that the server speaks AMQP."""
        self._close: bytes | None = None
        """The Connection.Close frame with the broker's reason, if one has arrived."""
        self._deliveries = Deliveries()
        self._told_at = 0.0

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # always bytes here
        """Take received bytes: deliver the messages, and pass all other frames to aiormq."""
        took = False
        for found in self._deliveries.feed(data):
            if isinstance(found, Other):
                self._has_heard = True
                if found.frame.startswith(CLOSE, CLOSE_AT):
                    self._close = found.frame
                super().feed_data(found.frame)
            elif isinstance(found, Returned):
                self.on_returned(found)
            else:
                took = True
                self.on_inbound(found)
        if took:
            self._tell()
            self.on_read()

    def reason(self, error: AMQPError) -> AMQPError:
        """Return why connecting failed, because aiormq drops part of the broker's reason."""
        if self._close is not None:
            frame = pamqp.frame.unmarshal(self._close)[2]
            assert isinstance(frame, spec.Connection.Close)
            return ConnectionClosed(frame.reply_code, frame.reply_text)
        return error if self._has_heard else IncompatibleProtocolError(*error.args)

    def _tell(self) -> None:
        """Feed aiormq a heartbeat, or it would consider a busy broker dead."""
        now = time.monotonic()
        if now - self._told_at > TELL_SECONDS:
            self._told_at = now
            super().feed_data(HEARTBEAT)


class SharedReader:
    """The reader of an application's connection, which takes the deliveries on our channels.

    It takes the place of asyncio's reader in aiormq as long as we have a channel there. Channels
    may only be added and removed while aiormq handles a frame, because it does not read then.
    """

    @classmethod
    def of(cls, receiver: FrameReceiver) -> "SharedReader":
        """Return our reader in aiormq; put it there unless another client has."""
        reader = receiver.reader
        return reader if isinstance(reader, cls) else cls(receiver)

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver
        self._reader = receiver.reader
        self._takers: dict[int, Callable[[bytes], bytes]] = {}
        self._frame = b""
        """The rest of the frame that aiormq is reading."""
        self._told_at = 0.0
        receiver.reader = self

    def add(self, number: int, take: Callable[[bytes], bytes]) -> None:
        """Pass the frames of a channel to a function, which returns the bytes for aiormq."""
        self._takers[number] = take

    def remove(self, number: int) -> None:
        """Leave the frames of a channel to aiormq."""
        self._takers.pop(number, None)
        if not self._takers:
            self._receiver.reader = self._reader

    def at_eof(self) -> bool:
        """Whether everything has been read, and nothing will follow."""
        return not self._frame and self._reader.at_eof()

    async def read(self) -> bytes:
        """Read everything that follows."""
        return self._frame + await self._reader.read()

    async def readexactly(self, n: int) -> bytes:
        """Read part of the next frame that is not a delivery on our channels."""
        while not self._frame:
            self._frame = await self._next()
        found, self._frame = self._frame[:n], self._frame[n:]
        return found

    async def _next(self) -> bytes:
        """Read a frame; return it, another one in its place, or no bytes."""
        start = await self._reader.readexactly(_START.size)
        _, number, size = _START.unpack(start)
        frame = start + await self._reader.readexactly(size + 1)
        take = self._takers.get(number)
        if take is None:
            return frame
        return take(frame) or self._heartbeat()

    def _heartbeat(self) -> bytes:
        """Return a heartbeat now and then, or aiormq would consider a busy broker dead."""
        now = time.monotonic()
        if now - self._told_at <= TELL_SECONDS:
            return b""
        self._told_at = now
        return HEARTBEAT


class FrameTransport(TransportFactory):
    """Opens the socket of one connection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.reader = FrameReader()
        self.writer: asyncio.StreamWriter | None = None

    async def create(
        self,
        url: URL,  # noqa: ARG002 - aiormq's; the address is used instead
        **kwargs: Any,  # noqa: ANN401, ARG002 - the same
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, with TLS if the address says so."""
        loop, address = asyncio.get_running_loop(), self._address
        context = address.tls_context()
        protocol = asyncio.StreamReaderProtocol(self.reader)
        transport, _ = await loop.create_connection(
            lambda: protocol,
            address.host,
            address.port,
            ssl=context,
            server_hostname=(address.server_name or address.host) if context else None,
        )
        self.writer = asyncio.StreamWriter(transport, protocol, self.reader, loop)
        return self.reader, self.writer
