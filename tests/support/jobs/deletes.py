"""Handlers that watch `job.deleted`, foreign deletes, and what is left over in the queues."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay import Client, ReservedJob, Worker
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import OutcomeUnknown
from tests.support.patience import patience

PATIENCE_SECONDS = patience(10)


def return_when_deleted(job: ReservedJob) -> float:
    """Return the time at which the job's deletion was seen, by a clock that all processes share."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not job.deleted:
        assert time.monotonic() < deadline, "job.deleted did not become true"
        time.sleep(0.0005)
    return time.monotonic()


async def return_when_deleted_async(job: ReservedJob) -> float:
    """Return the same from a coroutine."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not job.deleted:
        assert time.monotonic() < deadline, "job.deleted did not become true"
        await asyncio.sleep(0.0005)
    return time.monotonic()


def noting(worker: Worker, *topics: str, **options: Any) -> list[str]:  # noqa: ANN401 - passed on
    """Make a worker record the ids of the jobs that it runs, in their order."""
    seen: list[str] = []

    def note(job: ReservedJob) -> None:
        seen.append(job.id)

    for topic in topics or ("t",):
        worker.handler(topic, **options)(note)
    return seen


@contextmanager
def deletes_flow(client: Client) -> Iterator[None]:
    """Delete an id several times a second for the duration of the block."""
    is_over = threading.Event()

    def delete() -> None:
        while not is_over.wait(0.1):
            with suppress(OutcomeUnknown):
                client.delete("another's", timeout=0.5)

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def left_over(url: str, topology: Topology, *topics: str) -> dict[str, int]:
    """Return the message counts of the topics' ready and buried queues and `unrouted`, if not 0."""
    names = [topology.unrouted]
    for topic in topics or ("t",):
        names += [topology.ready_queue(topic), topology.buried_queue(topic)]
    counts = {name: _on_channel(url, partial(_count, name)) for name in names}
    return {name: count for name, count in counts.items() if count}


def append(url: str, topology: Topology, *records: bytes | dict[str, Any]) -> None:
    """Publish records to the log of deletes, as any AMQP client can."""
    bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in records]
    _on_channel(url, lambda channel: _append(channel, topology.log().queue.name, bodies))


def delete_log(url: str, topology: Topology) -> None:
    """Delete the stream of deletes, which no client should do."""
    _on_channel(url, lambda channel: channel.queue_delete(topology.log().queue.name))


def _append(channel: BlockingChannel, exchange: str, bodies: list[bytes]) -> None:
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish(exchange, "", body, mandatory=True)


def _count(queue: str, channel: BlockingChannel) -> int:
    try:
        answer: Any = channel.queue_declare(queue, passive=True).method
    except pika.exceptions.ChannelClosedByBroker:
        return 0
    return int(answer.message_count)


def _on_channel(url: str, act: Callable[[BlockingChannel], Any]) -> Any:  # noqa: ANN401 - passed on
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return act(connection.channel())
