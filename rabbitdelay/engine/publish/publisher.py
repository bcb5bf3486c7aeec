"""The publisher: takes puts from any thread and publishes them until the broker confirms them.

Callers pass puts to `submit`. The rest runs on the transport's thread, which declares missing
queues, publishes messages, and resolves those that are confirmed, refused or timed out.
"""

import random
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from rabbitdelay.address import Address
from rabbitdelay.core.amqp import encode, reply_codes
from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.publish import lanes
from rabbitdelay.core.publish.lanes import Lane
from rabbitdelay.core.publish.outbox import LadderEntry, Outbox, Pending, Target, timeout_error
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.connection import Connector, FirstConnection, logger
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.parked.rescue_guard import RescueGuard
from rabbitdelay.engine.parked.rescuer import Rescuer
from rabbitdelay.engine.publish.confirm_channel import ConfirmChannel
from rabbitdelay.engine.publish.stall_detector import StallDetector
from rabbitdelay.engine.publish.window import Window
from rabbitdelay.engine.topology.declarations import Declarations
from rabbitdelay.engine.transport import Closed, Confirm, Connection, Transport, nothing
from rabbitdelay.errors import (
    ClientClosed,
    ConnectionFailed,
    InvalidJob,
    JobRefused,
)

TICK_SECONDS = 0.1
"""Interval of the checks for deadlines, new queues and stalls while messages are unresolved."""
REFUSED_SECONDS = 2.0
"""Seconds that a target may refuse messages on one channel before another channel is tried.

On RabbitMQ 3.10 a channel may nack everything for good once its queue has lost its leader.
"""
REOPEN_SECONDS = 0.25
"""Wait before a new channel if the broker closes channels in quick succession."""
MAIN = ""
"""Name of the lane for all messages without a lane of their own."""


class PublishRoute(NamedTuple):
    """The exchange, routing key and lane of a message."""

    exchange: str
    key: str
    safe_at: float
    """Monotonic time at which the youngest queue on the route is stable."""
    lane: str
    """The queue or exchange that may refuse the message or not answer."""
    is_stream: bool = False


class Publisher:
    """Publishes over one connection, and keeps messages in an outbox until they are resolved."""

    def __init__(
        self,
        transport: Transport,
        addresses: Sequence[Address],
        routes: Routes,
        window: Window,
        rescue_guard: RescueGuard,
    ) -> None:
        self._wire = transport
        self.monotonic = transport.monotonic
        """Returns the seconds on the transport's monotonic clock."""
        self.may_wait = transport.may_wait
        """Returns whether the caller may wait. The transport's own thread may not."""
        self._connector = Connector(transport, addresses, self)
        # Shared with callers:
        self.window = window
        self._turn = 0
        """Number of times that the transport's thread has started to empty the inbox."""
        self._woken_in: int | None = None
        """The turn in which the thread was last woken. One wake-up per turn is enough."""
        self._first = FirstConnection(transport.monotonic)
        self._closed = False
        # Used only on the transport's thread:
        self._routes = routes
        self._outbox = Outbox()
        self._detector = StallDetector()
        self._declarations = Declarations(
            self._connector,
            routes,
            self._outbox,
            self._detector,
            fail=self._fail,
            flush=self._flush,
            made=self._queues_made,
        )
        self._rescuer = Rescuer(self._connector, routes, self.submit_copy, rescue_guard)
        self._lanes: dict[str, Lane] = {}
        self._outgoing: dict[str, ConfirmChannel] = {}
        """The current channel of each lane, by name of the lane; MAIN included."""
        self._draining: list[ConfirmChannel] = []
        """Channels on which nothing more is published, but confirms are outstanding."""
        self._frame_max = 0
        self._blocked: str | None = None
        self._ticking = False
        self._closing_at: float | None = None
        self._is_unanswered = False
        """Whether the broker left a message unanswered, and has answered none since."""
        self._closed_channel_at = 0.0
        """Monotonic time at which the broker last closed a channel."""

    # From any thread

    def start(self) -> None:
        """Start to connect."""
        self._connector.start()

    def connected(self, timeout: float) -> Flow[None]:
        """Wait for the first connection, and raise the error that prevents it."""
        return self._first.wait(timeout)

    def submit(self, pending: Pending) -> None:
        """Accept a put. Its `resolve` is called on the transport's thread.

        A signal handler may raise after any of these steps. The turn is therefore recorded after
        the call: if it is not recorded, the next submit wakes the thread once more, which is
        harmless.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        self.window.inbox.append(pending)
        turn = self._turn
        if self._woken_in != turn:
            if not self._connector.call(self._on_submit):  # the transport has ended
                self._closed = True
                self._refuse_the_rest()
            self._woken_in = turn

    def submit_copy(self, pending: Pending) -> None:
        """Accept the copy of a leased job, without waiting for room."""
        try:
            self.submit(pending)
        except ClientClosed as error:
            pending.resolve(error)

    def close(self, flush_seconds: float) -> Flow[None]:
        """Wait for unconfirmed messages, then close. Messages still unconfirmed then fail."""
        self.close_soon(flush_seconds)
        return self._connector.until_ended(flush_seconds)

    def close_soon(self, flush_seconds: float = process_lifetime.EXIT_FLUSH_SECONDS) -> None:
        """Close in the background."""
        if not self._closed:
            self._closed = True
            self._connector.call(partial(self._begin_close, flush_seconds))

    def abandon(self) -> None:
        """Forget the parent's connection in a forked child, without sending anything on it."""
        self._closed = True
        self._wire.abandon()

    def rescue(self) -> None:
        """Republish parked jobs in the background if their queues exist."""
        self._connector.call(self._rescuer.look_now)

    def rescue_ended(self) -> Future[None]:
        """Return a future that is done when no parked jobs are being republished."""
        ended: Future[None] = Future()
        call = partial(self._rescuer.when_ended, partial(ended.set_result, None))
        if not self._connector.call(call):
            ended.set_result(None)
        return ended

    @property
    def blocked(self) -> str | None:
        """The reason why the broker blocks publishers; None if it does not."""
        return self._blocked

    @property
    def has_ended(self) -> bool:
        """Whether the transport has ended, so that nothing more can be published."""
        return self._wire.ended.done()

    # Connections

    def connection_opened(self, connection: Connection) -> None:
        """Open a channel for publishing."""
        connection.on_blocked(self._set_blocked)
        connection.read_deliveries(self._rescuer.inbound, nothing)
        self._frame_max = connection.frame_max
        self._open(MAIN)

    def _queues_made(self) -> None:
        self._rescuer.queues_made()

    def connection_failed(self, error: ConnectionFailed) -> None:
        """Keep unconfirmed messages, to publish them again on the next connection."""
        self._forget_connection()
        self._rescuer.disconnected()
        self._blocked = None
        self._first.failed(error)

    def connection_closed(self) -> None:
        """Fail the remaining messages. Runs last on this thread, even if the thread fails."""
        self._closed = True
        self._first.ended()
        self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        self._take_in()
        for pending in list(self._outbox):
            self._fail(pending, timeout_error(pending, self._blocked, self._first.error))

    def _forget_connection(self) -> None:
        self._outgoing.clear()
        self._draining.clear()
        self._lanes.clear()
        self._declarations.forget()
        self._routes.forget()
        self._outbox.connection_lost()

    # Channels

    def _open(self, lane: str) -> None:
        """Open a channel for a lane, or the main channel."""
        connection = self._connector.connection
        if connection is not None and connection.is_open:
            outgoing = ConfirmChannel(
                connection, lane, self._outbox.new_flight(), self, self.monotonic
            )
            self._outgoing[lane] = outgoing
            outgoing.open()

    def channel_opened(self, outgoing: ConfirmChannel, seconds: float) -> None:
        """Publish the messages that were waiting for the channel."""
        self._detector.answered(seconds)
        if outgoing.lane == MAIN and self._first.opened():
            self._rescuer.look_now()
        self._flush()

    def channel_closed(self, outgoing: ConfirmChannel, closed: Closed) -> None:
        """Fail the messages that the broker refused, and publish the rest on another channel."""
        logger.warning("publisher: channel closed by the broker (%d %s)", closed.code, closed.text)
        in_flight = self._remove(outgoing)
        if closed.code == reply_codes.NOT_FOUND:
            self._routes.forget()  # an exchange was deleted: declare it again
        others = self._fail_what_was_refused(in_flight, closed)
        if len(others) == len(in_flight):
            self._suspect(others, outgoing, closed)
        again = [pending for pending in others if not pending.resolved]
        for pending in again:
            pending.begin_again()
        self._outbox.put_back(*again)
        self._reopen(outgoing)

    def _suspect(
        self, in_flight: Sequence[Pending], outgoing: ConfirmChannel, closed: Closed
    ) -> None:
        """Find the message that made the broker close the channel, if the reply does not name it.

        The messages that were in flight are published again in small groups. If that closes a
        channel too, they are published one by one, so that only the culprit fails.
        """
        if reply_codes.is_passing(closed.text):
            return
        exchange = reply_codes.missing_exchange(closed.text)
        for pending in in_flight:
            if exchange not in (None, pending.exchange):
                continue
            if outgoing.lane == lanes.SUSPECT:
                self._fail(pending, _culprit_error(closed))
            pending.closures += 1

    def _fail_what_was_refused(self, in_flight: Sequence[Pending], closed: Closed) -> list[Pending]:
        """Fail the messages that the broker will never accept; return the others."""
        code, text = closed.code, closed.text
        limit, exchange = reply_codes.largest_body_bytes(text), reply_codes.refused_exchange(text)
        if limit is not None:
            error = InvalidJob(f"the broker does not accept a body above {limit:,} bytes")
            for pending in (*in_flight, *self._outbox):
                if len(pending.message.body) > limit:
                    self._fail(pending, error)
        elif code == reply_codes.ACCESS_REFUSED:
            for pending in in_flight:
                if exchange in (None, pending.exchange):
                    self._fail(pending, reply_codes.channel_error(code, text))
        return [pending for pending in in_flight if not pending.resolved]

    def _reopen(self, outgoing: ConfirmChannel) -> None:
        """Replace a closed main channel. The channel of a lane is opened when it is needed."""
        now = self.monotonic()
        wait = REOPEN_SECONDS if now - self._closed_channel_at < REOPEN_SECONDS else 0.0
        self._closed_channel_at = now
        if lane := self._lanes.get(outgoing.lane):
            lane.backs_off_until = now + wait
        if outgoing.lane == MAIN and MAIN not in self._outgoing:
            self._connector.call_later(wait, self._open_main)
        self._connector.call_later(wait, self._flush)

    def _open_main(self) -> None:
        if MAIN not in self._outgoing:
            self._open(MAIN)

    def _remove(self, outgoing: ConfirmChannel) -> list[Pending]:
        """Drop a channel, and return the messages in flight on it."""
        outgoing.drop()
        if self._outgoing.get(outgoing.lane) is outgoing:
            del self._outgoing[outgoing.lane]
        if outgoing in self._draining:
            self._draining.remove(outgoing)
        return self._outbox.end_flight(outgoing.flight)

    def _drain(self, outgoing: ConfirmChannel) -> None:
        """Stop publishing on a channel, and close it when nothing is in flight on it."""
        if self._outgoing.get(outgoing.lane) is outgoing:
            del self._outgoing[outgoing.lane]
            self._draining.append(outgoing)
        if outgoing in self._draining and not outgoing.flight:
            self._remove(outgoing)

    def _set_blocked(self, reason: str | None) -> None:
        if reason:
            logger.warning("publisher: blocked by the broker (%s)", reason)
        else:
            logger.warning("publisher: unblocked by the broker")
        self._blocked = reason
        self._detector.resume(self.monotonic())
        if reason and self._connector.is_closing:
            self._wire.cut()  # a broker with an alarm does not read the closing handshake
        self._flush()

    # Sending

    def _on_submit(self) -> None:
        self._turn += 1  # before emptying the inbox: a later put wakes the thread again
        self._take_in()
        self._flush()
        self._rescuer.published()
        self._start_ticking()

    def _take_in(self) -> None:
        window = self.window
        while window.inbox:
            self._outbox.add(window.take_in())

    def _flush(self) -> None:
        """Publish all ready messages in one write, because a system call costs more than a put."""
        connection = self._connector.connection
        if connection is None or not connection.is_open or self._blocked is not None:
            return
        now = self.monotonic()
        pieces: list[bytes] = []
        main = self._outgoing.get(MAIN)
        if main is not None and main.is_ready:
            while (pending := self._outbox.next()) is not None:
                pieces += self._send_or_set_aside(pending, main, now)
        for lane in tuple(self._lanes.values()):
            pieces += self._send_lane(lane, now)
        if pieces:
            connection.send_frames(b"".join(pieces))

    def _send_or_set_aside(
        self, pending: Pending, main: ConfirmChannel, now: float
    ) -> tuple[bytes, ...]:
        """Return the frames of a message; none if it has to wait or needs a lane of its own."""
        way = self._way(pending, now)
        if way is None:
            return ()
        if pending.closures or way.lane in self._lanes or way.is_stream:
            self._set_aside(pending, way)
            return ()
        return self._frames(pending, way, main, now)

    def _set_aside(self, pending: Pending, way: PublishRoute) -> None:
        name = way.lane
        if pending.closures:
            name = lanes.SUSPECTS if pending.closures == 1 else lanes.SUSPECT
        self._lane(name, is_stream=way.is_stream)
        self._outbox.set_aside(name, pending)

    def _lane(self, name: str, *, is_stream: bool = False) -> Lane:
        if name not in self._lanes:
            self._lanes[name] = lanes.make(name, is_stream=is_stream)
        return self._lanes[name]

    def _send_lane(self, lane: Lane, now: float) -> list[bytes]:
        """Return the frames of the messages that a lane may publish now."""
        if now < lane.backs_off_until or not self._outbox.has_aside(lane.name):
            return []
        outgoing = self._outgoing.get(lane.name)
        if outgoing is None:
            self._open(lane.name)
            return []
        pieces: list[bytes] = []
        while outgoing.is_ready and len(outgoing.flight) < lane.limit:
            pending = self._outbox.next_aside(lane.name)
            if pending is None:
                break
            if (way := self._way(pending, now)) is not None:
                pieces += self._frames(pending, way, outgoing, now)
        return pieces

    def _frames(
        self, pending: Pending, way: PublishRoute, outgoing: ConfirmChannel, now: float
    ) -> tuple[bytes, ...]:
        pending.sent = True
        pending.sent_at = now
        pending.exchange, pending.lane, pending.safe_at = way.exchange, way.lane, way.safe_at
        outgoing.flight.add(pending)
        number, message = outgoing.number, pending.message
        return (encode.publish(number, way.exchange, way.key, message, self._frame_max),)

    def _way(self, pending: Pending, now: float) -> PublishRoute | None:
        """Return the route of a message. If a queue is missing, set it aside and return None."""
        entry, routes = pending.route, self._routes
        if isinstance(entry, Target):
            return self._way_to(pending, entry)
        topic = entry.topic
        route = routes.route(pending.delay_ms(entry, now))
        if routes.is_known(route, topic):
            key = route.key_prefix + topic
            # A hold queue has an exchange of its own; the ready queues share one.
            lane = route.exchange if route.hold_queues else key
            return PublishRoute(route.exchange, key, routes.safe_at(route, topic), lane)
        self._declarations.request(pending, routes.parts(route, topic))
        return None

    def _way_to(self, pending: Pending, target: Target) -> PublishRoute | None:
        part = target.part
        if part is not None and not self._routes.are_made((part,)):
            self._declarations.request(pending, (part,))
            return None
        safe_at = (
            self._routes.safe_at_queue(part.queue.name)
            if part and target.waits_until_stable
            else 0.0
        )
        lane = target.exchange if target.is_stream else f"{target.exchange}/{target.routing_key}"
        return PublishRoute(target.exchange, target.routing_key, safe_at, lane, target.is_stream)

    # Resolving

    def confirmed(self, outgoing: ConfirmChannel, confirm: Confirm) -> None:
        """Resolve acknowledged messages, and publish nacked ones again after a backoff."""
        now, flight, multiple = self.monotonic(), outgoing.flight, confirm.multiple
        self._is_unanswered = False
        if not confirm.is_taken:
            self._refused(outgoing, flight.take(confirm.tag, multiple=multiple), now)
            return
        taken = flight.take(confirm.tag, multiple=multiple)
        if taken:
            self._detector.answered(now - taken[-1].sent_at)
        done = self._outbox.confirmed(taken, now)
        if outgoing.lane != MAIN:
            self._taken(outgoing, len(taken))
        if self._draining:
            self._drain_if_retired(outgoing)
        self._resolve(done)

    def _taken(self, outgoing: ConfirmChannel, count: int) -> None:
        """Publish more to a target that accepts messages; dissolve its lane after recovery."""
        lane = self._lanes.get(outgoing.lane)
        if lane is None:
            return
        lane.taken(count)
        if lane.has_recovered and lane.name not in (lanes.SUSPECTS, lanes.SUSPECT):
            self._dissolve(lane)
        if self._outbox.has_aside(lane.name) or lane.name not in self._lanes:
            self._flush()

    def _dissolve(self, lane: Lane) -> None:
        if lane.is_permanent:
            return
        del self._lanes[lane.name]
        self._outbox.bring_back(lane.name)
        if outgoing := self._outgoing.get(lane.name):
            self._drain(outgoing)

    def _refused(self, outgoing: ConfirmChannel, refused: Sequence[Pending], now: float) -> None:
        """Back off from the targets that refused these messages, and only from those."""
        for pending in refused:
            pending.closures = 0  # the broker read the message without closing the channel
            lane = self._lane(pending.lane, is_stream=pending.is_for_a_stream)
            lane.refused(now, random.random())  # noqa: S311 - jitter
            self._outbox.set_aside_first(lane.name, pending)
        is_own = refused and outgoing.lane == refused[0].lane
        if is_own and now - outgoing.asked_at > REFUSED_SECONDS:
            text = "publisher: %s refused messages for %.0f s; trying another channel"
            logger.warning(text, outgoing.lane, REFUSED_SECONDS)
            self._outbox.set_aside_first(outgoing.lane, *self._remove(outgoing))
        self._drain_if_retired(outgoing)

    def _drain_if_retired(self, outgoing: ConfirmChannel) -> None:
        if outgoing in self._draining:
            self._drain(outgoing)

    def returned(self, outgoing: ConfirmChannel, returned: Returned) -> None:
        """Fail a message that cannot be routed, or retry one whose stream is missing."""
        pending = outgoing.flight.take_returned(returned)
        if pending is None:
            return
        part = pending.route.part if isinstance(pending.route, Target) else None
        if part is not None and part.is_stream:
            # Shortly after a restart the stream is not up yet, and RabbitMQ 3.10 would confirm and
            # lose a message that is not mandatory. A stream that was deleted is declared again.
            self._routes.forget_queue(part.queue.name)
            self._refused(outgoing, [pending], self.monotonic())
            return
        if part is not None or isinstance(pending.route, LadderEntry):
            self._routes.forget()
        self._fail(pending, _refusal(pending, returned.text))

    def _fail(self, pending: Pending, error: Exception) -> None:
        if not pending.resolved:
            self._outbox.discard(pending)
            self._resolve([pending], error)

    def _resolve(self, done: Sequence[Pending], error: Exception | None = None) -> None:
        if not done:
            return
        for pending in done:
            pending.resolved = True
            pending.resolve(error)
        self.window.leave(len(done), sum(len(pending.message.body) for pending in done))
        self._close_when_done()

    def _start_ticking(self) -> None:
        if not self._ticking and len(self._outbox):
            self._ticking = True
            self._connector.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now = self.monotonic()
        self._resolve(self._outbox.stabilised(now))
        for pending in self._outbox.expire(now):
            self._is_unanswered = pending.sent
            self._fail(pending, timeout_error(pending, self._blocked, self._first.error))
        self._routes.forget_stable(now)
        if self._blocked is None:
            self._look_for_stalls(now)
        if self._lanes:
            self._tend_lanes()
        self._start_ticking()

    def _tend_lanes(self) -> None:
        """Dissolve empty lanes, and publish messages whose backoff has ended."""
        for lane in tuple(self._lanes.values()):
            outgoing = self._outgoing.get(lane.name)
            in_flight = outgoing is not None and len(outgoing.flight) > 0
            if not in_flight and not self._outbox.has_aside(lane.name):
                self._dissolve(lane)
        self._flush()

    def _look_for_stalls(self, now: float) -> None:
        self._declarations.restart_stalled(now)
        for outgoing in (*self._outgoing.values(), *self._draining):
            lane = self._lanes.get(outgoing.lane)
            failures = 0 if lane is None else lane.failures
            stalled = self._detector.stalled_lanes(outgoing.flight, now, failures)
            if stalled:
                seconds = self._detector.patience_seconds(failures)
                text = "publisher: no confirm for %.0f s from %s; republishing on another channel"
                logger.warning(text, seconds, ", ".join(sorted(stalled)))
                self._stalled(outgoing, stalled)

    def _stalled(self, outgoing: ConfirmChannel, stalled: set[str]) -> None:
        """Publish the unconfirmed messages to these targets again, on channels of their own.

        Messages to other targets stay in flight on the old channel.
        """
        if outgoing.lane == MAIN:
            again = outgoing.flight.take_if(lambda pending: pending.lane in stalled)
            self._drain(outgoing)
            self._open_main()
        else:
            again = self._remove(outgoing)
        for pending in reversed(again):
            self._lane(pending.lane, is_stream=pending.is_for_a_stream)
            pending.closures = 0
            pending.begin_again()
            self._outbox.set_aside_first(pending.lane, pending)
        for name in stalled:
            self._lanes[name].stalled()
        self._flush()

    # Closing

    def _begin_close(self, flush_seconds: float) -> None:
        self._on_submit()
        self._closing_at = self.monotonic() + flush_seconds
        self._connector.call_later(flush_seconds, self._close_when_done)
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self._closing_at is None:
            return
        awaited = (pending for pending in self._outbox if not pending.is_expendable)
        if next(awaited, None) is not None and self.monotonic() < self._closing_at:
            return
        self._closing_at = None
        self._give_up_the_rest()
        is_silent = self._blocked is not None or self._is_unanswered
        self._connector.close(
            process_lifetime.UNANSWERED_SECONDS if is_silent else process_lifetime.CLOSE_SECONDS
        )

    def _give_up_the_rest(self) -> None:
        unconfirmed = list(self._outbox)
        if puts := [pending for pending in unconfirmed if not pending.is_expendable]:
            self._is_unanswered = True
            ids = ", ".join(str(pending.message.message_id) for pending in puts[:10])
            logger.warning("publisher: closed (%d puts not confirmed: %s)", len(puts), ids)
        for pending in unconfirmed:
            self._fail(pending, timeout_error(pending, self._blocked, self._first.error))


def _culprit_error(closed: Closed) -> JobRefused:
    return JobRefused(
        f"the broker closes the channel when it reads this message ({closed.code} {closed.text}): "
        "its properties or headers are not acceptable to this broker"
    )


def _refusal(pending: Pending, text: str) -> JobRefused:
    if isinstance(pending.route, Target) and pending.route.part is None:
        return JobRefused(f"there is no queue {pending.route.routing_key} ({text})")
    return JobRefused(
        f"the broker cannot route this job ({text}), and the queue for unrouted jobs is missing "
        "too: run `rabbitdelay topology apply`"
    )
