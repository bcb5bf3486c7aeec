"""The undocumented parts of aio-pika and aiormq. No other file of the asyncio front end uses any.

- `aio_pika.Connection.kwargs` are passed to aiormq, which accepts a `transport_factory` there.
- `aio_pika.Connection.__del__` closes a connection that is garbage-collected.
- `aio_pika.Connection.transport.connection` is aiormq's connection.
- `aiormq.Connection.channels` maps numbers to channels. aiormq uses only `frames` of a channel,
  whose coroutine `put((weight, frame))` is called with each frame.
- `aiormq.Connection.connection_tune`, `.server_properties`, `.closing` and `.write_queue`, which
  takes a `ChannelFrame`.
- `aiormq.Connection.ready()` waits only while the broker blocks publishers.
- `aiormq.connection.TransportFactory` opens the socket.
- `aiormq.Connection._reader_task` runs a coroutine whose local variable `frame_receiver` reads each
  frame with `at_eof()` and `readexactly()` of its attribute `reader`, and then calls `put`.

pyproject.toml caps aio-pika and aiormq below the versions that may change them.
tests/unit/aio/driver/test_aiormq_internals.py fails if one of them has changed.
"""

import asyncio
import inspect
from typing import Any, Protocol

import aio_pika
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractConnection as AiormqConnection
from aiormq.abc import ChannelFrame
from aiormq.connection import TransportFactory
from yarl import URL

__all__ = [
    "AiormqConnection",
    "FactoryConnection",
    "FrameReceiver",
    "StreamReader",
    "TransportFactory",
    "broker_version",
    "channels",
    "closing",
    "frame_max",
    "frame_receiver",
    "is_done_at_once",
    "underlying",
    "write_bytes",
]


class StreamReader(Protocol):
    """The part of asyncio's reader that aiormq uses."""

    def at_eof(self) -> bool:
        """Whether everything has been read, and nothing will follow."""

    async def read(self) -> bytes:
        """Read everything that follows."""

    async def readexactly(self, n: int) -> bytes:
        """Read this many bytes."""


class FrameReceiver(Protocol):
    """Reads the frames of a connection."""

    reader: StreamReader


class FactoryConnection(aio_pika.Connection):
    """A connection that opens its socket with a factory and is closed only explicitly."""

    def __init__(self, url: URL, factory: TransportFactory) -> None:
        super().__init__(url)
        self.kwargs["transport_factory"] = factory

    def __del__(self) -> None:
        """Do nothing. aio-pika's method would close the connection."""


def underlying(connection: AbstractConnection) -> AiormqConnection:
    """Return the aiormq connection of a connected aio-pika connection."""
    assert connection.transport is not None
    return connection.transport.connection


def channels(connection: AiormqConnection) -> dict[int, Any]:
    """Return the channels by number. The dict may be modified; a channel needs only `frames`."""
    return connection.channels


def closing(connection: AiormqConnection) -> asyncio.Future[Any]:
    """Return the future that is done when the connection has ended."""
    return connection.closing


def frame_max(connection: AiormqConnection) -> int:
    """Return the maximum frame size negotiated with the broker, in bytes."""
    return connection.connection_tune.frame_max or 131_072


def broker_version(connection: AiormqConnection) -> str:
    """Return the version of RabbitMQ; empty if the broker does not report one."""
    version = (getattr(connection, "server_properties", None) or {}).get("version", "")
    return version.decode() if isinstance(version, bytes) else str(version)


async def write_bytes(connection: AiormqConnection, data: bytes) -> None:
    """Queue bytes behind aiormq's own frames."""
    await connection.write_queue.put(ChannelFrame(payload=data, should_close=False))


def frame_receiver(connection: AiormqConnection) -> FrameReceiver | None:
    """Return the object that reads the frames of a connection, or None if it cannot be found.

    Its reader may be replaced while aiormq calls `put`, because it is between two frames then.
    """
    task = getattr(connection, "_reader_task", None)
    coroutine = task.get_coro() if task is not None else None
    if not inspect.iscoroutine(coroutine):
        return None
    found = inspect.getcoroutinelocals(coroutine).get("frame_receiver")
    return found if hasattr(getattr(found, "reader", None), "readexactly") else None


def is_done_at_once(connection: AiormqConnection) -> bool:
    """Whether publishing is not blocked: aiormq's `ready` then returns without waiting."""
    ready = connection.ready().__await__()
    try:
        next(ready)
    except StopIteration:
        return True
    ready.close()
    return False
