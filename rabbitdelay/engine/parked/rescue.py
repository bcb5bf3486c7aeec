"""One pass through `unrouted`, which republishes parked jobs to the queues that they belong to.

A job is parked when a queue on its route is missing. There are two common reasons. A queue was
deleted while clients rely on it. Or the broker keeps its metadata in Mnesia, as every one before
4.2 does by default. Such a broker starts its quorum queues before all bindings are restored, and a
job that is dead-lettered in that moment cannot be routed (seen in 1 of about 45 restarts of
RabbitMQ 3.10.8 under load).

A job is republished if its ready queue exists, or if this connection has used that queue, which is
then declared again. Hold queues are declared as for any put. Jobs of other topics stay parked, for
a client that needs the topic or for an operator.

Jobs that the broker's dead-letter worker keeps are out of reach over AMQP. docs/measurements.md
describes all attempts ("Starting while jobs come due").
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.parked import unrouted
from rabbitdelay.core.parked.unrouted import UnroutedJob
from rabbitdelay.core.publish.outbox import LadderEntry, Pending, Target
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.transport import Channel, Closed, Connection
from rabbitdelay.system_time import TimeSource

TIMEOUT_SECONDS = 30.0
"""Timeout for republishing a job; then it stays parked."""
MAX_IN_FLIGHT = 500
"""Maximum number of republished jobs that are not confirmed yet."""

Answer = Callable[[bool], None]


Submit = Callable[[Pending], None]
"""Publishes a message without waiting for room; its `resolve` is called with the result."""


class Rescue:
    """Goes through `unrouted` once on an open connection; on the transport's thread.

    Messages that are not republished return to the queue when the channel is closed.
    """

    def __init__(
        self,
        connection: Connection,
        routes: Routes,
        submit: Submit,
        count: int,
        done: Callable[[int], None],
        *,
        monotonic: TimeSource,
    ) -> None:
        self._monotonic = monotonic
        self._connection = connection
        self._routes = routes
        self._topology = routes.topology
        self._submit = submit
        self._done = done
        self._channel: Channel | None = None
        self._unread = count
        self._is_reading = True
        self._in_flight = 0
        self._sent = 0
        self._left = 0
        self._is_present: dict[str, bool] = {}
        self._made_again: set[str] = set()
        self._is_over = False
        self.progressed_at = self._monotonic()
        """Monotonic time of the broker's last answer."""
        self.refused: Closed | None = None
        """The broker's reason for closing the channel, if it did."""

    def start(self) -> None:
        """Read the first message."""
        self._connection.open_channel(self._opened)

    def abandon(self) -> None:
        """Stop without calling `done`. Unconfirmed messages return to the queue."""
        self._is_over = True
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def inbound(self, found: Delivery | GetEmpty) -> None:
        """Handle the reply to a basic.get."""
        if self._channel is None or found.channel != self._channel.number or self._is_over:
            return
        self.progressed_at = self._monotonic()
        if isinstance(found, GetEmpty):
            self._unread = 0
            self._read_next()
        else:
            self._take(found)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        if self._is_over:
            channel.close()
            return
        channel.on_closed(self._closed)
        self._read_next()

    def _closed(self, _channel: Channel, closed: Closed) -> None:
        self.refused = closed
        self._end(self._left + self._in_flight + self._unread)

    def _read_next(self) -> None:
        """Request the next message, unless too many are in flight."""
        channel = self._channel
        assert channel is not None
        self._is_reading = False
        if not channel.is_open or self._is_over:
            return
        if not self._unread:
            self._end_if_complete()
        elif self._in_flight < MAX_IN_FLIGHT:
            self._is_reading = True
            self._unread -= 1
            self._connection.send_frames(encode.get(channel.number, self._topology.unrouted))

    def _end_if_complete(self) -> None:
        if not self._unread and not self._is_reading and not self._in_flight:
            self._end(self._left)

    def _end(self, left: int) -> None:
        if self._is_over:
            return
        self.abandon()
        if self._sent:
            logger.warning("unrouted: %d jobs republished (%d stay parked)", self._sent, left)
        self._done(left)

    def _take(self, delivery: Delivery) -> None:
        if delivery.problem is not None:
            self._leave()
            return
        where = (delivery.exchange, delivery.routing_key)
        found = unrouted.read(self._topology, *where, delivery.message)
        if found.topic is None or unrouted.way_on(self._topology, found) is None:
            self._leave()
            return
        self._when_needed(found.topic, partial(self._make_way, delivery, found))

    def _leave(self) -> None:
        self._left += 1
        self._read_next()

    # Missing queues

    def _when_needed(self, topic: str, send: Callable[[], None]) -> None:
        """Call `send` if the topic exists, or is declared again because this connection uses it."""
        ready = self._topology.ready_queue(topic)

        def answered(is_present: bool) -> None:  # noqa: FBT001 - the answer
            if is_present or self._routes.knows(ready) or ready in self._made_again:
                send()
            else:
                self._leave()

        self._ask(ready, answered)

    def _make_way(self, delivery: Delivery, found: UnroutedJob) -> None:
        """Have the missing queue and its bindings declared before the job is republished."""
        missing = unrouted.missing_queue(self._topology, found)

        def answered(is_present: bool) -> None:  # noqa: FBT001 - the answer
            self._make_again(missing, is_present=is_present)
            self._send_on(delivery, found)

        self._ask(missing, answered)

    def _make_again(self, queue: str, *, is_present: bool) -> None:
        """Have the publisher declare a queue again, once, because it or its binding is missing."""
        if queue in self._made_again:
            return
        self._made_again.add(queue)
        if not is_present:
            logger.warning("%s: queue deleted, declaring it again (jobs for it are parked)", queue)
        self._routes.forget_queue(queue)

    def _ask(self, queue: str, answered: Answer) -> None:
        """Find out, once per queue, whether it exists."""
        if queue in self._is_present:
            answered(self._is_present[queue])
            return

        def learn(*, is_present: bool) -> None:
            self.progressed_at = self._monotonic()
            self._is_present[queue] = is_present
            if not self._is_over:
                answered(is_present)

        def opened(channel: Channel) -> None:
            def counted(_ready: int, _consumers: int) -> None:
                channel.close()
                learn(is_present=True)

            channel.on_closed(lambda *_: learn(is_present=False))
            channel.count(queue, counted)

        self._connection.open_channel(opened)

    # Republishing

    def _send_on(self, delivery: Delivery, found: UnroutedJob) -> None:
        now = self._monotonic()
        topic = found.topic or ""
        message = replace(found.message, headers=envelope.fresh_headers(found.message.headers))
        route: LadderEntry | Target = LadderEntry(topic, found.remaining_ms)
        if found.to_bury:
            buried, _ = self._topology.topic(topic)
            route = Target(self._topology.buried_exchange, topic, buried)
        self._in_flight += 1
        self._submit(
            Pending(
                message,
                route,
                now,
                now + TIMEOUT_SECONDS,
                partial(self._resolved, delivery),
                f"rescue of {found.id} ({topic})",
            )
        )
        self._read_next()

    def _resolved(self, delivery: Delivery, error: Exception | None) -> None:
        self._in_flight -= 1
        self.progressed_at = self._monotonic()
        if self._is_over or self._channel is None or not self._channel.is_open:
            return
        if error is None:
            self._connection.send_frames(encode.ack(delivery.channel, delivery.tag))
            self._sent += 1
        else:
            text = "unrouted: job %s not republished (%s)"
            logger.warning(text, delivery.message.message_id, error)
            self._left += 1
        if not self._is_reading:
            self._read_next()
