"""Streams as a plain AMQP client sees them: reading, writing and deleting them."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import Fence, Record
from rabbitdelay.core.deletes.snapshots import is_piece
from tests.support.brokers.messages import publish
from tests.support.patience import patience

_FIRST_SECONDS = patience(5)
_QUIET_SECONDS = patience(1)
_LAST_SECONDS = patience(20)
Found = list[tuple[int, bytes]]


def read_log(url: str, log: str) -> Found:
    """Return all records of a log of deletes with their offsets, without fences."""
    end = Fence(secrets.token_hex(8))
    append_records(url, log, [end])
    found = read_stream(url, log, last=records.encode(end))
    return [one for one in found if not isinstance(records.decode(one[1]), Fence)]


def read_stream(url: str, stream: str, *, last: bytes | None = None) -> Found:
    """Return all messages of a stream with their offsets.

    Read until this last message, or without one until no message follows for a while.
    """
    found: Found = []
    ends_at = 0.0

    def take(
        channel: BlockingChannel,
        method: Any,  # noqa: ANN401 - pika has no types for it
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        nonlocal ends_at
        ends_at = 0.0 if body == last else time.monotonic() + quiet_seconds
        found.append(((properties.headers or {})["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)

    quiet_seconds = _QUIET_SECONDS if last is None else _LAST_SECONDS
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        channel.basic_consume(stream, take, arguments={"x-stream-offset": "first"})
        ends_at = time.monotonic() + _FIRST_SECONDS
        while time.monotonic() < ends_at:
            connection.process_data_events(0.05)
    assert last is None or found[-1][1] == last, "the last message did not arrive"
    return found


def trailers(url: str, stream: str) -> list[bytes]:
    """Return the trailers in a stream of snapshots."""
    return [body for _, body in read_stream(url, stream) if not is_piece(body)]


def append(url: str, stream: str, bodies: Sequence[bytes]) -> None:
    """Publish bodies to a stream, as any AMQP client can, and wait for the confirms."""
    publish(url, stream, *((body, None) for body in bodies))


def append_records(url: str, stream: str, written: Sequence[Record]) -> None:
    """Publish records to the log of deletes."""
    append(url, stream, [records.encode(record) for record in written])


def delete_queue(url: str, name: str) -> None:
    """Delete a queue or a stream, as an operator may by mistake."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_delete(name)
