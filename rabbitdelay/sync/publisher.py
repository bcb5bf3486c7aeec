"""The publisher: the way of a put from any thread to the broker's confirm.

Callers hand puts over with `submit`. Everything else happens on the I/O thread: what must be made
is made, what can be sent is sent, and what is confirmed, refused or late is resolved.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pika import exceptions as pika_errors
from pika.channel import Channel
from pika.compat import long
from pika.spec import BasicProperties

from rabbitdelay.address import Address
from rabbitdelay.core import envelope, ladder, replies
from rabbitdelay.core.outbox import Outbox, Pending
from rabbitdelay.core.setup import setup
from rabbitdelay.core.topology import Part, Topology
from rabbitdelay.errors import (
    BrokerBlocked,
    BrokerUnreachable,
    ClientClosed,
    ConnectionFailed,
    InvalidJob,
    JobRefused,
    OutcomeUnknown,
    PermissionRefused,
    RabbitDelayError,
)
from rabbitdelay.models import Job
from rabbitdelay.sync import driver_errors, lifetime
from rabbitdelay.sync.connection import Connector, CorkedConnection, logger
from rabbitdelay.sync.setup import SetupDriver

TICK_SECONDS = 0.1
"""How often deadlines and settling queues are looked at while something is on its way."""
PAUSE_SECONDS = 0.25
"""How long to hold back after the broker refused something, before it is sent again."""
MOST_ROUTES = 10_000
PERSISTENT = 2


@dataclass(frozen=True, slots=True)
class Route:
    """Where jobs with one delay go."""

    digits: ladder.Digits
    exchange: str
    key_prefix: str
    hold_queues: frozenset[str]


class Publisher:
    """One publishing connection, with its thread and its outbox."""

    def __init__(
        self,
        addresses: Sequence[Address],
        topology: Topology,
        *,
        may_declare: bool,
        settle_seconds: float,
    ) -> None:
        self._topology = topology
        self._may_declare = may_declare
        self._settle_seconds = settle_seconds
        self._connector = Connector(addresses, f"rabbitdelay-{topology.namespace}", self)
        # Shared with callers:
        self._inbox: deque[Pending] = deque()
        self._woken = False
        self._state = threading.Condition()
        self._connected_once = False
        self._last_error: ConnectionFailed | None = None
        self._closed = False
        # Of the I/O thread alone:
        self._outbox = Outbox()
        self._channel: Channel | None = None
        self._blocked: str | None = None
        self._paused_until = 0.0
        self._setting_up: Pending | None = None
        self._base_known = False
        self._known: set[str] = set()
        self._unsettled: dict[str, float] = {}
        self._routes: dict[int, Route] = {}
        self._ticking = False
        self._closing_at: float | None = None

    # From any thread

    def start(self, connect_timeout: float) -> None:
        """Start, and wait for the first connection; raise what stands in its way."""
        lifetime.opened(self)
        self._connector.start()
        deadline = time.monotonic() + connect_timeout
        with self._state:
            while not self._connected_once:
                error = self._last_error
                rest = deadline - time.monotonic()
                if error and (rest <= 0 or not isinstance(error, BrokerUnreachable)):
                    raise error
                if not self._state.wait(max(rest, 1.0)) and self._last_error is None:
                    raise BrokerUnreachable(f"{self._connector.address}: no answer in time")

    def submit(self, pending: Pending) -> None:
        """Take a put; its `resolve` will be called on the I/O thread."""
        if self._closed:
            raise ClientClosed("the client is closed")
        self._inbox.append(pending)
        if not self._woken:
            self._woken = True
            self._connector.call(self._on_submit)

    def close(self, flush_seconds: float) -> None:
        """Wait for what is on its way, then close. What is not confirmed by then is told so."""
        self._closed = True
        self._connector.call(partial(self._begin_close, flush_seconds))
        if not self._connector.is_current_thread():
            self._connector.join(flush_seconds + 5)
        lifetime.closed(self)

    def close_soon(self) -> None:
        """Close in the background: nobody holds the client any more."""
        self._closed = True
        self._connector.call(partial(self._begin_close, lifetime.EXIT_FLUSH_SECONDS))

    def abandon(self) -> None:
        """In a forked child: forget the parent's connection without a word on it."""
        self._closed = True
        self._connector.abandon()

    @property
    def on_own_thread(self) -> bool:
        """Whether the caller is on the I/O thread, where nobody may wait."""
        return self._connector.is_current_thread()

    # The connection comes and goes

    def connection_opened(self, connection: CorkedConnection) -> None:
        """Open a channel for publishing."""
        connection.add_on_connection_blocked_callback(
            lambda _, frame: self._set_blocked(frame.method.reason)
        )
        connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(None))
        self._open_channel()

    def connection_failed(self, error: ConnectionFailed) -> None:
        """Keep what is not confirmed, to be sent again."""
        self._forget_channel()
        self._blocked = None
        with self._state:
            self._last_error = error
            self._state.notify_all()
        if self._closing_at is not None:
            self._close_when_done()

    def _open_channel(self) -> None:
        connection = self._connector.connection
        if connection is not None and connection.is_open:
            connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._begin(channel))

    def _begin(self, channel: Channel) -> None:
        self._channel = channel
        with self._state:
            self._connected_once = True
            self._last_error = None
            self._state.notify_all()
        self._flush()

    def _forget_channel(self) -> None:
        """Forget what was known: a broker that crashed may have lost what was just made."""
        self._channel = None
        self._setting_up = None
        self._base_known = False
        self._known.clear()
        self._unsettled.clear()
        self._outbox.connection_lost()

    def _channel_closed(self, channel: Channel, error: Exception) -> None:
        if channel is not self._channel or self._closing_at is not None:
            return
        if isinstance(error, pika_errors.ChannelClosedByBroker):
            self._fail_what_was_refused(error.reply_code, error.reply_text)
        self._forget_channel()
        self._pause()
        self._open_channel()

    def _fail_what_was_refused(self, code: int, text: str) -> None:
        """Resolve the puts that the broker will never take; the others go again."""
        limit = replies.largest_body_bytes(text)
        for pending in list(self._outbox):
            if limit is not None and len(pending.job.payload) > limit:
                self._fail(pending, InvalidJob(f"the broker takes no body above {limit:,} bytes"))
            elif code == replies.ACCESS_REFUSED and pending.sent:
                self._fail(pending, replies.channel_error(code, text))
        logger.warning("the broker closed the channel: %s %s", code, text)

    def _set_blocked(self, reason: str | None) -> None:
        self._blocked = reason
        self._flush()

    # Sending

    def _on_submit(self) -> None:
        self._woken = False
        while self._inbox:
            self._outbox.add(self._inbox.popleft())
        self._flush()
        self._start_ticking()

    def _flush(self) -> None:
        connection = self._connector.connection
        if connection is None or not self._may_send():
            return
        now = time.monotonic()
        with connection.corked():
            while self._may_send() and (pending := self._outbox.next()) is not None:
                self._send(pending, now)

    def _may_send(self) -> bool:
        return (
            self._channel is not None
            and self._channel.is_open
            and self._blocked is None
            and self._setting_up is None
            and time.monotonic() >= self._paused_until
        )

    def _send(self, pending: Pending, now: float) -> None:
        route = self._route(pending.remaining_delay_ms(now))
        ready = self._topology.ready_queue(pending.job.topic)
        if not (self._base_known and ready in self._known and route.hold_queues <= self._known):
            self._set_up(pending, route)
            return
        try:
            self._publish(pending.job, route)
        except pika_errors.AMQPError as error:
            self._fail(pending, InvalidJob(f"pika cannot send this job: {error!r}"))
        else:
            self._outbox.sent(pending, self._safe_at(route, ready))

    def _publish(self, job: Job, route: Route) -> None:
        assert self._channel is not None
        # Mandatory: if even `unrouted` is gone, the broker returns the job instead of dropping it.
        self._channel.basic_publish(
            route.exchange, route.key_prefix + job.topic, job.payload, properties(job), True
        )

    def _route(self, delay_ms: int) -> Route:
        route = self._routes.get(delay_ms)
        if route is None:
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            route = self._routes[delay_ms] = make_route(self._topology, delay_ms)
        return route

    def _safe_at(self, route: Route, ready: str) -> float:
        if not self._unsettled:
            return 0.0
        return max(self._unsettled.get(name, 0.0) for name in (ready, *route.hold_queues))

    # Making what is missing

    def _set_up(self, pending: Pending, route: Route) -> None:
        """Make what this put needs. Nothing is sent meanwhile: it is rare, and takes a moment."""
        connection = self._connector.connection
        assert connection is not None
        self._outbox.put_back(pending)
        self._setting_up = pending
        parts = [
            part
            for part in self._topology.path(route.digits, pending.job.topic)
            if part.queue.name not in self._known
        ]
        conversation = setup(
            self._topology,
            parts,
            with_base=not self._base_known,
            may_declare=self._may_declare,
        )
        SetupDriver(connection, conversation, partial(self._set_up_done, pending, parts)).start()

    def _set_up_done(
        self, pending: Pending, parts: Sequence[Part], result: bool | Exception
    ) -> None:
        if self._setting_up is not pending:
            return  # the connection was lost meanwhile
        self._setting_up = None
        if isinstance(result, Exception):
            self._fail(pending, result)
        else:
            self._remember(parts, unsettled=result)
        self._connector.call_later(0, self._flush)

    def _remember(self, parts: Sequence[Part], *, unsettled: bool) -> None:
        names = [part.queue.name for part in parts]
        self._base_known = True
        self._known.update(names)
        if unsettled and self._settle_seconds:
            safe_at = time.monotonic() + self._settle_seconds
            self._unsettled.update(dict.fromkeys(names, safe_at))

    # Resolving

    def _on_confirm(self, frame: Any) -> None:  # noqa: ANN401 - pika's method frame
        method = frame.method
        if method.NAME == "Basic.Ack":
            done = self._outbox.confirmed(
                method.delivery_tag, multiple=method.multiple, now=time.monotonic()
            )
            self._confirm(done)
        else:
            self._outbox.put_back(
                *self._outbox.refused(method.delivery_tag, multiple=method.multiple)
            )
            self._pause()

    def _on_return(
        self, _channel: object, method: Any, returned: BasicProperties, _body: bytes  # noqa: ANN401
    ) -> None:
        token = (returned.headers or {}).get("rd-token", "")
        if (pending := self._outbox.returned(token)) is not None:
            self._forget_topology()
            error = JobRefused(
                f"the broker has nowhere to put this job ({method.reply_text}): "
                f"queue {self._topology.unrouted} is missing; run `rabbitdelay topology apply`"
            )
            self._fail(pending, error)

    def _forget_topology(self) -> None:
        self._base_known = False
        self._known.clear()

    def _confirm(self, done: Sequence[Pending]) -> None:
        for pending in done:
            pending.resolved = True
            pending.resolve(pending, None)
        self._close_when_done()

    def _fail(self, pending: Pending, error: Exception) -> None:
        if not pending.resolved:
            self._outbox.discard(pending)
            pending.resolved = True
            pending.resolve(pending, error)

    def _pause(self) -> None:
        self._paused_until = time.monotonic() + PAUSE_SECONDS
        self._connector.call_later(PAUSE_SECONDS, self._flush)

    def _start_ticking(self) -> None:
        if not self._ticking and len(self._outbox):
            self._ticking = True
            self._connector.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now = time.monotonic()
        self._confirm(self._outbox.settled(now))
        for pending in self._outbox.expire(now):
            pending.resolved = True
            pending.resolve(pending, self._timeout_error(pending))
        self._unsettled = {name: at for name, at in self._unsettled.items() if at > now}
        self._close_when_done()
        self._start_ticking()

    def _timeout_error(self, pending: Pending) -> RabbitDelayError:
        fate = (
            "it may or may not have arrived"
            if pending.sent
            else "it was never sent and has not arrived"
        )
        text = f"put of {pending.job.id} ({pending.job.topic}) was not confirmed in time: {fate}"
        error: OutcomeUnknown
        if self._blocked is not None:
            reason = f"the broker takes nothing while its alarm lasts ({self._blocked})"
            error = BrokerBlocked(f"{text}; {reason}", sent=pending.sent)
        else:
            error = OutcomeUnknown(text, sent=pending.sent)
        error.__cause__ = self._last_error
        return error

    # Closing

    def _begin_close(self, flush_seconds: float) -> None:
        self._on_submit()
        self._closing_at = time.monotonic() + flush_seconds
        self._close_when_done()
        self._connector.call_later(flush_seconds, self._close_when_done)

    def _close_when_done(self) -> None:
        if self._closing_at is None:
            return
        if len(self._outbox) and time.monotonic() < self._closing_at:
            return
        if unconfirmed := list(self._outbox):
            ids = ", ".join(pending.job.id for pending in unconfirmed[:10])
            logger.warning("closed with %d puts not confirmed: %s", len(unconfirmed), ids)
        for pending in unconfirmed:
            self._fail(pending, self._timeout_error(pending))
        self._connector.close()


def make_route(topology: Topology, delay_ms: int) -> Route:
    """Return where jobs with this delay go."""
    digits = ladder.to_digits(delay_ms)
    return Route(
        digits,
        topology.level_exchange(ladder.entry_index(digits)),
        ladder.routing_key(digits, ""),
        frozenset(topology.hold_queue(hop) for hop in ladder.hops(digits)),
    )


def properties(job: Job) -> BasicProperties:
    """Return pika's form of a job's headers and properties."""
    message = envelope.encode(job)
    return BasicProperties(
        content_type=message.content_type,
        # Without `long`, pika tries 32 bits for each number first and catches the overflow.
        headers={
            name: long(value) if isinstance(value, int) else value
            for name, value in message.headers.items()
        },
        delivery_mode=PERSISTENT,
        message_id=message.message_id,
        timestamp=message.timestamp_s,
    )
