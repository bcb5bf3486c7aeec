"""Streams as a plain AMQP client sees them: reading, writing and deleting them."""

import time
from collections.abc import Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import Record
from rabbitdelay.core.deletes.snapshots import is_piece
from tests.support.waiting import patience
from tests.support.working import publish

_FIRST_SECONDS = patience(5)
_QUIET_SECONDS = patience(1)
Found = list[tuple[int, bytes]]


def read_stream(url: str, stream: str) -> Found:
    """Return all messages of a stream with their offsets, reading until none follows."""
    found: Found = []
    ends_at = 0.0

    def take(
        channel: BlockingChannel,
        method: Any,  # noqa: ANN401 - pika has no types for it
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        nonlocal ends_at
        ends_at = time.monotonic() + _QUIET_SECONDS
        found.append(((properties.headers or {})["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        channel.basic_consume(stream, take, arguments={"x-stream-offset": "first"})
        ends_at = time.monotonic() + _FIRST_SECONDS
        while time.monotonic() < ends_at:
            connection.process_data_events(0.05)
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
