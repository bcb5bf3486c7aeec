"""The publisher: the way of a put from any thread to the broker's confirm.

Callers hand puts over with `submit`. All else happens on the wire's thread: what must be made is
made, what can be sent is sent, and what is confirmed, refused or late is resolved.
"""

import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from rabbitdelay.address import Address
from rabbitdelay.core import frames, replies
from rabbitdelay.core.deliveries import Delivery, GetEmpty
from rabbitdelay.core.outbox import Outbox, Pending, Target, timeout_error
from rabbitdelay.core.routes import Routes
from rabbitdelay.core.topology import Part
from rabbitdelay.engine import lifetime
from rabbitdelay.engine.connector import Connector, FirstConnection, logger
from rabbitdelay.engine.flows import Flow
from rabbitdelay.engine.rescue import Rescue
from rabbitdelay.engine.setup import SetupDriver
from rabbitdelay.engine.window import Window
from rabbitdelay.engine.wire import Channel, Closed, Confirm, Link, Returned, Wire, nothing
from rabbitdelay.errors import (
    ClientClosed,
    ConnectionFailed,
    InvalidJob,
    JobRefused,
)

TICK_SECONDS = 0.1
"""How often deadlines and settling queues are looked at while something is on its way."""
PAUSE_SECONDS = 0.25
"""How long to hold back after the broker refused something, before it is sent again."""
STALLED_SECONDS = 8.0
"""How long the broker may take to answer before all is asked and sent again on another channel.

A channel of RabbitMQ 3.10 that asks for a queue, or sends to one, while that has no leader may wait
for the one that died for ever; another channel finds the new one.
"""
REFUSED_SECONDS = 2.0
"""How long the broker may refuse everything before it is sent on another channel."""


class Publisher:
    """One publishing connection, with its outbox."""

    def __init__(
        self,
        wire: Wire,
        addresses: Sequence[Address],
        routes: Routes,
        window: Window,
    ) -> None:
        self._connector = Connector(wire, addresses, self)
        # Shared with callers:
        self._window = window
        self._inbox: deque[Pending] = deque()
        self._woken = False
        self._first = FirstConnection()
        self._closed = False
        # Of the wire's thread alone:
        self._routes = routes
        self._outbox = Outbox()
        self._channel: Channel | None = None
        self._frame_max = 0
        self._blocked: str | None = None
        self._paused = False
        self._setting_up: Pending | None = None
        self._ticking = False
        self._closing_at: float | None = None
        self._rescuing: Rescue | None = None
        self._oldest: tuple[Pending | None, float] = (None, 0.0)
        """The put that waits longest for an answer, and when it was first seen to be that."""
        self._refused_since: float | None = None
        """Since when the broker refuses whatever is sent."""
        self._patience_seconds = STALLED_SECONDS

    # From any thread

    def start(self) -> None:
        """Begin to connect."""
        self._connector.start()

    def connected(self, timeout: float) -> Flow[None]:
        """Wait for the first connection; raise what stands in its way."""
        return self._first.wait(timeout)

    def submit(self, pending: Pending) -> None:
        """Take a put; its `resolve` will be called on the wire's thread."""
        if self._closed:
            raise ClientClosed("the client is closed")
        self._inbox.append(pending)
        if not self._woken:
            self._woken = True
            if not self._connector.call(self._on_submit):  # nothing runs there any more
                self._closed = True
                self._refuse_the_rest()

    def submit_copy(self, pending: Pending) -> None:
        """Take what a consumer gives back: it holds a job, and does not wait for room."""
        self._window.enter_regardless()
        try:
            self.submit(pending)
        except ClientClosed as error:
            self._window.leave_unsent()
            pending.resolve(pending, error)

    def close(self, flush_seconds: float) -> Flow[None]:
        """Wait for what is on its way, then close. What is not confirmed by then is told so."""
        self.close_soon(flush_seconds)
        return self._connector.until_ended(flush_seconds)

    def close_soon(self, flush_seconds: float = lifetime.EXIT_FLUSH_SECONDS) -> None:
        """Close in the background."""
        if not self._closed:
            self._closed = True
            self._connector.call(partial(self._begin_close, flush_seconds))

    def abandon(self) -> None:
        """In a forked child: forget the parent's connection without a word on it."""
        self._closed = True
        self._connector.wire.abandon()

    def rescue(self) -> None:
        """Send on, in the background, jobs that the broker parked while it started."""
        self._connector.call(self._rescue)

    @property
    def blocked(self) -> str | None:
        """Why the broker takes nothing; None when it does."""
        return self._blocked

    @property
    def has_ended(self) -> bool:
        """Whether nothing will be sent any more."""
        return self._connector.has_ended

    @property
    def may_wait(self) -> bool:
        """Whether the caller may wait: not on a thread of the wire's own."""
        return self._connector.wire.may_wait()

    # The connection comes and goes

    def connection_opened(self, link: Link) -> None:
        """Open a channel for publishing."""
        link.on_blocked(self._set_blocked)
        link.read_deliveries(self._inbound, nothing)
        self._frame_max = link.frame_max
        self._open_channel()

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if self._rescuing is not None:
            self._rescuing.inbound(found)

    def _rescue(self) -> None:
        link = self._connector.link
        if self._routes.may_declare and link is not None and link.is_open:
            self._rescuing = Rescue(link, self._routes.topology, self)
            self._rescuing.start()

    def connection_failed(self, error: ConnectionFailed) -> None:
        """Keep what is not confirmed, to be sent again."""
        self._forget_channel()
        self._rescuing = None
        self._blocked = None
        self._first.failed(error)

    def connection_closed(self) -> None:
        """Resolve whatever is left: the last thing on this thread, also when it fails."""
        self._closed = True
        self._woken = False
        self._first.ended()
        self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        self._take_in()
        for pending in list(self._outbox):
            self._fail(pending, timeout_error(pending, self._blocked, self._first.error))

    def _open_channel(self) -> None:
        link = self._connector.link
        if link is not None and link.is_open:
            link.open_channel(self._channel_opened)

    def _channel_opened(self, channel: Channel) -> None:
        channel.on_closed(self._channel_closed)
        channel.confirm(
            partial(self._on_confirm, channel),
            partial(self._on_return, channel),
            partial(self._begin, channel),
        )

    def _begin(self, channel: Channel) -> None:
        self._channel = channel
        if self._first.opened():
            self.rescue()
        self._flush()

    def _forget_channel(self) -> None:
        self._channel = None
        self._setting_up = None
        self._routes.forget()
        self._outbox.connection_lost()

    def _channel_closed(self, channel: Channel, closed: Closed) -> None:
        if channel is not self._channel:
            return
        logger.warning("the broker closed the channel: %d %s", closed.code, closed.text)
        self._fail_what_was_refused(closed.code, closed.text)
        self._forget_channel()
        self._pause()
        self._open_channel()

    def _fail_what_was_refused(self, code: int, text: str) -> None:
        """Resolve the puts that the broker will never take; the others go again."""
        limit, exchange = replies.largest_body_bytes(text), replies.refused_exchange(text)
        for pending in list(self._outbox):
            if limit is not None and len(pending.message.body) > limit:
                self._fail(pending, InvalidJob(f"the broker takes no body above {limit:,} bytes"))
            elif (
                code == replies.ACCESS_REFUSED
                and pending.sent
                and exchange in (None, pending.exchange)
            ):
                self._fail(pending, replies.channel_error(code, text))

    def _set_blocked(self, reason: str | None) -> None:
        logger.warning("the broker is %s", f"blocked: {reason}" if reason else "unblocked")
        self._blocked = reason
        self._flush()

    # Sending

    def _on_submit(self) -> None:
        self._woken = False
        self._take_in()
        self._flush()
        self._start_ticking()

    def _take_in(self) -> None:
        while self._inbox:
            pending = self._inbox.popleft()
            self._window.load(len(pending.message.body))
            self._outbox.add(pending)

    def _flush(self) -> None:
        """Send what can be sent, as one piece: a system call costs more than a put."""
        link, channel = self._connector.link, self._channel
        if link is None or channel is None or not channel.is_open:
            return
        now = time.monotonic()
        pieces: list[bytes] = []
        while self._may_send() and (pending := self._outbox.next()) is not None:
            pieces += self._send(pending, channel.number, now)
        if pieces:
            link.send_frames(b"".join(pieces))

    def _may_send(self) -> bool:
        return self._blocked is None and self._setting_up is None and not self._paused

    def _send(self, pending: Pending, channel_number: int, now: float) -> tuple[bytes, ...]:
        """Return the frames of a message, or none when something must be made first."""
        way = self._way(pending, now)
        if way is None:
            return ()
        exchange, key, safe_at = way
        pending.exchange = exchange
        self._outbox.sent(pending, safe_at)
        message = pending.message
        return (frames.publish(channel_number, exchange, key, message, self._frame_max),)

    def _way(self, pending: Pending, now: float) -> tuple[str, str, float] | None:
        """Where it goes, and from when on it is safe there; None when that is yet to be made."""
        if pending.target is not None:
            return self._way_to(pending, pending.target)
        topic, routes = pending.job.topic, self._routes
        route = routes.route(pending.delay_ms(now))
        if routes.is_known(route, topic):
            return route.exchange, route.key_prefix + topic, routes.safe_at(route, topic)
        self._set_up(pending, routes.parts(route, topic))
        return None

    def _way_to(self, pending: Pending, target: Target) -> tuple[str, str, float] | None:
        part = target.part
        if part is not None and not self._routes.are_made((part,)):
            self._set_up(pending, (part,))
            return None
        safe_at = self._routes.safe_at_queue(part.queue.name) if part and target.settles else 0.0
        return target.exchange, target.routing_key, safe_at

    def _set_up(self, pending: Pending, parts: Sequence[Part]) -> None:
        """Make what this put needs. Nothing is sent meanwhile: it is rare, and takes a moment."""
        assert self._connector.link is not None
        self._outbox.put_back(pending)
        self._setting_up = pending
        done = partial(self._set_up_done, pending, parts)
        SetupDriver(self._connector.link, self._routes.set_up(parts), done).start()

    def _set_up_done(
        self,
        pending: Pending,
        parts: Sequence[Part],
        result: bool | Exception,  # noqa: FBT001 - what the conversation returned
    ) -> None:
        if self._setting_up is not pending:
            return  # the connection was lost meanwhile
        self._setting_up = None
        if isinstance(result, Exception) and replies.is_passing(str(result)):
            self._pause()  # the broker has just started: try again, until its deadline
            return
        if isinstance(result, Exception):
            self._fail(pending, result)
        else:
            self._routes.learn(parts, unsettled=result, now=time.monotonic())
        self._connector.call_later(0, self._flush)

    def _pause(self) -> None:
        self._paused = True
        self._connector.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._paused = False
        self._flush()

    # Resolving

    def _on_confirm(self, channel: Channel, confirm: Confirm) -> None:
        if channel is not self._channel:
            return  # it is being closed, and what was sent on it goes again
        self._patience_seconds = STALLED_SECONDS
        tag, multiple = confirm.tag, confirm.multiple
        if confirm.is_taken:
            self._refused_since = None
            self._resolve(self._outbox.confirmed(tag, multiple=multiple, now=time.monotonic()))
        else:
            self._outbox.put_back(*self._outbox.refused(tag, multiple=multiple))
            self._pause()
            self._look_for_a_deaf_channel(time.monotonic())

    def _on_return(self, channel: Channel, returned: Returned) -> None:
        if channel is not self._channel:
            return
        token = returned.headers.get("rd-token", "")
        where = (returned.exchange, returned.routing_key)
        pending = self._outbox.returned(returned.message_id, token, *where)
        if pending is not None and pending.target is not None and pending.target.is_stream:
            # For a moment after a restart a stream is not there yet. RabbitMQ 3.10 would confirm
            # and lose what is not mandatory. If it was deleted it is made again.
            self._routes.forget()
            self._outbox.put_back(pending)
            self._pause()
        elif pending is not None:
            if pending.target is None or pending.target.part is not None:
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
            pending.resolve(pending, error)
        self._window.leave(len(done), sum(len(pending.message.body) for pending in done))
        self._close_when_done()

    def _start_ticking(self) -> None:
        if not self._ticking and len(self._outbox):
            self._ticking = True
            self._connector.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now = time.monotonic()
        self._resolve(self._outbox.settled(now))
        for pending in self._outbox.expire(now):
            self._fail(pending, timeout_error(pending, self._blocked, self._first.error))
        self._routes.forget_settled(now)
        self._look_for_a_stall(now)
        self._start_ticking()

    def _look_for_a_stall(self, now: float) -> None:
        (oldest, since), waits = self._oldest, self._setting_up or self._outbox.oldest_sent
        if waits is not oldest or self._blocked is not None:
            self._oldest = (waits, now)
        elif waits is not None and now - since > self._patience_seconds:
            text = "no answer for %.0f s about %s: it is sent again, on another channel"
            logger.warning(text, self._patience_seconds, waits.job.topic)
            self._patience_seconds *= 2  # a broker that is only slow must not get more and more
            self._send_again()

    def _look_for_a_deaf_channel(self, now: float) -> None:
        """A channel of RabbitMQ 3.10 whose queue has lost its leader may refuse all for good."""
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > REFUSED_SECONDS:
            self._refused_since = None
            logger.warning("nothing was taken for %.0f s: another channel", REFUSED_SECONDS)
            self._send_again()

    def _send_again(self) -> None:
        channel = self._channel
        self._forget_channel()
        if channel is not None and channel.is_open:
            channel.close()
        self._open_channel()

    # Closing

    def _begin_close(self, flush_seconds: float) -> None:
        self._on_submit()
        self._closing_at = time.monotonic() + flush_seconds
        self._connector.call_later(flush_seconds, self._close_when_done)
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self._closing_at is None:
            return
        if len(self._outbox) and time.monotonic() < self._closing_at:
            return
        self._closing_at = None
        if unconfirmed := list(self._outbox):
            ids = ", ".join(pending.job.id for pending in unconfirmed[:10])
            logger.warning("closed with %d puts not confirmed: %s", len(unconfirmed), ids)
        for pending in unconfirmed:
            self._fail(pending, timeout_error(pending, self._blocked, self._first.error))
        self._connector.close()


def _refusal(pending: Pending, text: str) -> JobRefused:
    if pending.target is not None and pending.target.part is None:
        return JobRefused(f"there is no queue {pending.target.routing_key} ({text})")
    return JobRefused(
        f"the broker has nowhere to put this job ({text}): even the queue of what cannot be "
        "routed is missing; run `rabbitdelay topology apply`"
    )
