"""Read deliveries on the client's own connections before aio-pika sees them.

aiormq awaits three times per frame, and creates three objects and a task per delivery. A header
that it cannot decode closes the connection, after every reconnect. All other frames are passed on.
"""

import asyncio
import time
from typing import Any

import pamqp.frame
from aiormq.exceptions import AMQPError, ConnectionClosed, IncompatibleProtocolError
from pamqp import commands as spec
from yarl import URL

from rabbitdelay.address import Address
from rabbitdelay.aio.driver.aiormq_internals import TransportFactory
from rabbitdelay.core.amqp.decode import Deliveries, Other
from rabbitdelay.engine.transport import OnInbound, Then, nothing

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CLOSE, CLOSE_AT = b"\x00\x0a\x00\x32", 7
"""The method id of Connection.Close, and its offset after the frame header."""
TELL_SECONDS = 1.0
"""Seconds between heartbeats fed to aiormq, because it does not see deliveries."""


class FrameReader(asyncio.StreamReader):
    """A stream reader that takes deliveries out of the bytes fed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_inbound: OnInbound = nothing
        self.on_read: Then = nothing
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
