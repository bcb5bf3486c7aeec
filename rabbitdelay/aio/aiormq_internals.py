"""The parts of aio-pika and aiormq that they do not document. No other file of this front uses any.

- `aio_pika.Connection.kwargs` are passed on to aiormq, which takes a `transport_factory` there.
- `aio_pika.Connection.__del__` closes a connection that was forgotten.
- `aio_pika.Connection.transport.connection` is the connection of aiormq.
- `aiormq.Connection.channels` are its channels by number. All that it needs of one is `frames`,
  whose coroutine `put((weight, frame))` is called with each frame.
- `aiormq.Connection.connection_tune`, `.server_properties`, `.closing` and `.write_queue`, which
  takes a `ChannelFrame`.
- `aiormq.Connection.ready()` waits while the broker blocks publishers, and not otherwise.
- `aiormq.connection.TransportFactory` opens the socket.

pyproject.toml caps aio-pika and aiormq below the version that may change them, and
tests/unit/aio/test_aiormq_internals.py fails when one of them is different.
"""

import asyncio
from typing import Any

import aio_pika
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractConnection as AiormqConnection
from aiormq.abc import ChannelFrame
from aiormq.connection import TransportFactory
from yarl import URL

__all__ = [
    "AiormqConnection",
    "FactoryConnection",
    "TransportFactory",
    "broker_version",
    "channels",
    "closing",
    "frame_max",
    "is_done_at_once",
    "underlying",
    "write_bytes",
]


class FactoryConnection(aio_pika.Connection):
    """A connection that opens its socket by a factory, and is closed only when it is told to."""

    def __init__(self, url: URL, factory: TransportFactory) -> None:
        super().__init__(url)
        self.kwargs["transport_factory"] = factory

    def __del__(self) -> None:
        """Do nothing: aio-pika would close it."""


def underlying(connection: AbstractConnection) -> AiormqConnection:
    """Return aiormq's connection below one of aio-pika's that is connected."""
    assert connection.transport is not None
    return connection.transport.connection


def channels(connection: AiormqConnection) -> dict[int, Any]:
    """Return the channels by number, which may be added to: all they need is `frames`."""
    return connection.channels


def closing(connection: AiormqConnection) -> asyncio.Future[Any]:
    """Return what is done when the connection has ended."""
    return connection.closing


def frame_max(connection: AiormqConnection) -> int:
    """Return the largest frame, as agreed with the broker."""
    return connection.connection_tune.frame_max or 131_072


def broker_version(connection: AiormqConnection) -> str:
    """Return the version of RabbitMQ."""
    version = (getattr(connection, "server_properties", None) or {}).get("version", "")
    return version.decode() if isinstance(version, bytes) else str(version)


async def write_bytes(connection: AiormqConnection, data: bytes) -> None:
    """Write bytes in turn with aiormq's own frames."""
    await connection.write_queue.put(ChannelFrame(payload=data, should_close=False))


def is_done_at_once(connection: AiormqConnection) -> bool:
    """Whether the broker takes what is published: aiormq is `ready` then, without waiting."""
    ready = connection.ready().__await__()
    try:
        next(ready)
    except StopIteration:
        return True
    ready.close()
    return False
