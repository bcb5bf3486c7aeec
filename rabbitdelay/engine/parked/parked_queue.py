"""A queue of parked messages, which wait for an operator.

This file owns three rules:

1. A message is acknowledged only after the broker has confirmed its copy in queues that survive a
   crash. A crash in between duplicates the message, and never loses it.
2. One pass takes at most as many messages as the queue had when it began. Messages that it
   requeues, and messages that return after they were republished, wait for the next pass.
3. Messages that were taken and not acknowledged are requeued, so that listing changes nothing. A
   pass that checks the log of deletes drops the deleted jobs that it finds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic

from rabbitdelay.core.amqp import decode, field_table
from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.amqp.field_table import Undecodable
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.parked_job import Choice, Found, SentJobs
from rabbitdelay.core.topology.setup import namespace_missing
from rabbitdelay.engine.administration.queue_queries import QueueQueries
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.connections import Connections
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.parked.queue_reader import QueueReader
from rabbitdelay.engine.parked.sending import Copy, Sending, TakenMessage
from rabbitdelay.errors import TopologyMissing

BATCH = 100
"""Messages received at once. Their bodies are in memory, each of up to a megabyte."""
OnTried = Callable[[Found, bool], None]
"""Called with each job of the choice, and whether it was republished."""
IsDead = Callable[[Found], Flow[bool]]


class ParkedQueue(ABC, Generic[Found]):
    """Reads, republishes and drops the messages of one queue."""

    def __init__(self, connections: Connections, settings: ClientSettings, name: str) -> None:
        self.connections = connections
        self.topology = settings.topology
        self.name = name
        self.timeout = settings.timeout
        self.source = settings.transport
        """Waits, if the transport is not a driver's."""
        self.monotonic = settings.monotonic
        """Returns the seconds on the client's monotonic clock."""

    # For subclasses

    @abstractmethod
    def read(self, exchange: str, routing_key: str, message: Message) -> Found:
        """Parse a message of the queue."""

    @abstractmethod
    def copy(self, found: Found) -> Copy | None:
        """Return the copy to publish for a job; None if the job has no route."""

    @abstractmethod
    def why_missing(self) -> str:
        """Return the reason why the queue does not exist, although its namespace does."""

    def begin_pass(self) -> Flow[None]:
        """Prepare a pass."""
        yield from ()

    def end_pass(self) -> None:
        """Undo what `begin_pass` did."""

    # Verbs

    def count(self) -> Flow[int]:
        """Count the ready messages of the queue."""
        side = yield from self.connections.consuming_side()
        queries = QueueQueries(side.consumer, self.timeout)
        counted = yield from queries.count(self.name)
        if counted is None:
            raise (yield from self._missing(queries))
        return counted.ready

    def _missing(self, queries: QueueQueries) -> Flow[TopologyMissing]:
        if not (yield from queries.is_there(self.topology.unrouted)):
            return namespace_missing(self.topology)
        return TopologyMissing(f"there is no queue {self.name}: {self.why_missing()}")

    def drop(self, choice: Choice[Found], limit: int | None) -> Flow[int]:
        """Remove jobs for good; return their number."""
        one_pass, dropped = Pass(self, choice, limit), 0
        while taken := (yield from one_pass.next()):
            one_pass.ack([one.tag for one in taken])
            dropped += len(taken)
        return dropped

    def send_on(
        self,
        choice: Choice[Found],
        limit: int | None,
        *,
        timeout: float | None,
        is_dead: IsDead[Found] | None = None,
        on_tried: OnTried[Found] | None = None,
    ) -> Flow[SentJobs]:
        """Republish jobs, and acknowledge each once the broker has confirmed its copy."""
        one_pass = Pass(self, choice, limit, is_dead)
        results = {True: 0, False: 0}
        seconds = self.timeout if timeout is None else validation.check_timeout(timeout)
        try:
            while taken := (yield from one_pass.next()):
                publisher = yield from self.connections.publisher()
                sending = Sending(self.copy, publisher, taken, self.monotonic() + seconds)
                try:
                    yield from sending.run()
                finally:
                    one_pass.ack(sending.confirmed())
                for one in taken:
                    is_sent = sending.is_sent(one)
                    results[is_sent] += 1
                    if on_tried is not None:
                        on_tried(one.found, is_sent)
        finally:
            one_pass.abandon()
        return SentJobs(results[True], results[False], one_pass.dropped_deleted)

    def take(self, delivery: Delivery) -> TakenMessage[Found]:
        """Return a message with its original bytes, parsed as far as possible."""
        where = decode.published_to(delivery)
        try:
            original = decode.original(delivery)
        except Undecodable:
            return TakenMessage(delivery.tag, self.read(*where, delivery.message), None)
        message = delivery.message
        if delivery.problem is not None:
            message = _decoded(original)
        return TakenMessage(delivery.tag, self.read(*where, message), original)


class Pass(Generic[Found]):
    """Goes over a parked queue once. The first `next` begins the pass."""

    def __init__(
        self,
        queue: ParkedQueue[Found],
        choice: Choice[Found],
        limit: int | None,
        is_dead: IsDead[Found] | None = None,
    ) -> None:
        self._queue = queue
        self._choice = choice
        self._limit = None if limit is None else validation.check_setting(limit, "limit")
        self._is_dead = is_dead
        self._reader: QueueReader | None = None
        self._left = 0
        self._chosen = 0
        self._has_begun = False
        self._is_over = False
        self.dropped_deleted = 0
        """Number of jobs that the pass has dropped because they are deleted."""

    def next(self) -> Flow[list[TakenMessage[Found]]]:
        """Return the next chosen jobs, unacknowledged; none after the others were requeued."""
        try:
            if not self._has_begun:
                self._has_begun = True
                yield from self._begin()
            while self._left and self._chosen != self._limit and self._reader is not None:
                if taken := (yield from self._receive(self._reader)):
                    return taken
            if self._reader is not None and not self._is_over:
                yield from self._reader.finish()
        except BaseException:
            self.abandon()
            raise
        self.abandon()
        return []

    def next_found(self) -> Flow[list[Found]]:
        """Return the next chosen jobs; none at the end."""
        taken = yield from self.next()
        return [one.found for one in taken]

    def ack(self, tags: Iterable[int]) -> None:
        """Acknowledge jobs."""
        if self._reader is not None:
            self._reader.ack(tags)

    def abandon(self) -> None:
        """End the pass without waiting. The broker requeues the unacknowledged messages."""
        if not self._is_over:
            self._is_over = True
            self._left = 0
            if self._reader is not None:
                self._reader.abandon()
            if self._has_begun:
                self._queue.end_pass()

    def _begin(self) -> Flow[None]:
        queue = self._queue
        yield from queue.begin_pass()
        self._left = yield from queue.count()
        if self._left:
            side = yield from queue.connections.consuming_side()
            self._reader = QueueReader(side.consumer, queue.name, queue.timeout)
            yield from self._reader.open()

    def _receive(self, reader: QueueReader) -> Flow[list[TakenMessage[Found]]]:
        asked = min(self._left, BATCH)
        batch = yield from reader.receive(asked)
        self._left = self._left - asked if len(batch) == asked else 0
        taken: list[TakenMessage[Found]] = []
        dead: list[int] = []
        for delivery in batch:
            one = self._queue.take(delivery)
            if self._chosen == self._limit or not self._choice.takes(one.found):
                continue
            if self._is_dead is not None and (yield from self._is_dead(one.found)):
                dead.append(one.tag)
                continue
            self._chosen += 1
            taken.append(one)
        reader.ack(dead)
        self.dropped_deleted += len(dead)
        return taken


def _decoded(original: Message) -> Message:
    """Return a message with its headers decoded as far as possible."""
    headers: dict[str, Any] = field_table.decode_each(original.headers)
    return replace(original, headers=headers)
