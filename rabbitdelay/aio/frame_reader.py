"""The transport of our own connections: it reads deliveries before aio-pika sees them.

aiormq waits three times for each frame and makes three objects and a task of each delivery; and a
header that it cannot decode ends the connection, again and again. Everything else is handed on.
"""

import asyncio
import time
from typing import Any

import pamqp.frame
from aiormq.exceptions import AMQPError, ConnectionClosed, IncompatibleProtocolError
from pamqp import commands as spec
from yarl import URL

from rabbitdelay.address import Address
from rabbitdelay.aio.aiormq_internals import TransportFactory
from rabbitdelay.core.amqp.decode import Deliveries, Other
from rabbitdelay.engine.transport import OnInbound, Then, nothing

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CLOSE, CLOSE_AT = b"\x00\x0a\x00\x32", 7
"""Connection.Close, behind the header of its frame."""
TELL_SECONDS = 1.0
"""How often aiormq is told that the broker is alive: it sees no delivery."""


class FrameReader(asyncio.StreamReader):
    """A reader that takes deliveries out of what it is fed."""

    def __init__(self) -> None:
        super().__init__()
        self.on_inbound: OnInbound = nothing
        self.on_read: Then = nothing
        self._has_heard = False
        """Whether a whole frame has come: who answers speaks AMQP."""
        self._close: bytes | None = None
        """The frame in which the broker said why it closes the connection."""
        self._deliveries = Deliveries()
        self._told_at = 0.0

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # it is always bytes
        """Take bytes as they come."""
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
        """Why a connection could not be made: of what the broker says aiormq tells only a part."""
        if self._close is not None:
            frame = pamqp.frame.unmarshal(self._close)[2]
            assert isinstance(frame, spec.Connection.Close)
            return ConnectionClosed(frame.reply_code, frame.reply_text)
        return error if self._has_heard else IncompatibleProtocolError(*error.args)

    def _tell(self) -> None:
        """Let aiormq have a heartbeat, else it takes a busy broker for dead."""
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
        url: URL,  # noqa: ARG002 - aiormq's; the address is what we were given
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
