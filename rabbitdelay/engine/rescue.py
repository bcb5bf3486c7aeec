"""Rescue: after a broker has come back, jobs that it parked while it started are sent on.

A broker that keeps its metadata in Mnesia (every one before 4.2, by default) starts its quorum
queues before all its bindings are back. A job that came due while the broker was down may be
dead-lettered in that moment, find no way, and be parked in `unrouted`: seen in 1 of about 45
restarts of RabbitMQ 3.10.8 under load. Whoever reconnects sends such jobs on. Those of topics that
are really gone stay, for a person.

Jobs that the broker's dead-letter worker holds are beyond the reach of AMQP: every way that was
tried is in docs/measurements.md ("Starting while jobs come due").
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from rabbitdelay.core import envelope, frames, unrouted
from rabbitdelay.core.deliveries import Delivery, GetEmpty
from rabbitdelay.core.outbox import Pending, Target
from rabbitdelay.core.topology import Topology
from rabbitdelay.core.unrouted import Unrouted
from rabbitdelay.engine.connector import logger
from rabbitdelay.engine.wire import Channel, Link
from rabbitdelay.models import Job

TIMEOUT_SECONDS = 30.0
"""How long one may take to be sent on, before it is given back."""


class Sender(Protocol):
    """Who sends them on."""

    def submit_copy(self, pending: Pending) -> None:
        """Send it; its `resolve` will be called."""


class Rescue:
    """Goes through `unrouted` once, over an open connection; on the wire's thread.

    What it takes and does not send on goes back when its channel is closed.
    """

    def __init__(self, link: Link, topology: Topology, sender: Sender) -> None:
        self._link = link
        self._topology = topology
        self._sender = sender
        self._channel: Channel | None = None
        self._left = 0
        self._on_their_way = 0
        self._sent = 0
        self._is_there: dict[str, bool] = {}

    def start(self) -> None:
        """Look whether there is anything."""
        self._link.open_channel(self._opened)

    def inbound(self, found: Delivery | GetEmpty) -> None:
        """A message that was asked for."""
        if self._channel is None or found.channel != self._channel.number:
            return
        if isinstance(found, GetEmpty):
            self._left = 0
            self._next()
        else:
            self._take(found)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel  # the broker closes it when there is no such queue: that is all
        channel.count(self._topology.unrouted, self._counted)

    def _counted(self, ready: int, _consumers: int) -> None:
        self._left = ready
        self._next()

    def _next(self) -> None:
        channel = self._channel
        if channel is None or not channel.is_open:
            return
        if self._left:
            self._left -= 1
            self._link.send_frames(frames.get(channel.number, self._topology.unrouted))
        elif not self._on_their_way:
            channel.close()
            if self._sent:
                text = "%d jobs were parked in unrouted, and are on their way again"
                logger.warning(text, self._sent)

    def _take(self, delivery: Delivery) -> None:
        message = delivery.message
        if delivery.problem is not None:
            self._next()
            return
        where = (delivery.exchange, delivery.routing_key)
        found = unrouted.read(self._topology, *where, message)
        if found.topic is None:
            self._next()
        else:
            self._when_there(found.topic, partial(self._send_on, delivery, found))

    def _when_there(self, topic: str, send: Callable[[], None]) -> None:
        """Send it, if its topic has a ready queue; ask for that once."""
        if topic in self._is_there:
            send() if self._is_there[topic] else self._next()
            return

        def looked(*, is_there: bool) -> None:
            self._is_there[topic] = is_there
            self._when_there(topic, send)

        def opened(channel: Channel) -> None:
            def counted(_ready: int, _consumers: int) -> None:
                channel.close()
                looked(is_there=True)

            channel.on_closed(lambda *_: looked(is_there=False))
            channel.count(self._topology.ready_queue(topic), counted)

        self._link.open_channel(opened)

    def _send_on(self, delivery: Delivery, found: Unrouted) -> None:
        now = time.monotonic()
        topic = found.topic or ""
        token = found.message.headers.get("rd-token")
        job = Job(topic, found.id or "", token if isinstance(token, str) else "", 0, 0, None, b"")
        message = replace(found.message, headers=envelope.fresh_headers(found.message.headers))
        target = None
        if found.to_bury:
            buried, _ = self._topology.topic(topic)
            target = Target(self._topology.buried_exchange, topic, buried)
        self._on_their_way += 1
        self._sender.submit_copy(
            Pending(
                job,
                message,
                found.remaining_ms,
                now,
                now + TIMEOUT_SECONDS,
                partial(self._resolved, delivery),
                target=target,
            )
        )
        self._next()

    def _resolved(self, delivery: Delivery, _pending: Pending, error: Exception | None) -> None:
        self._on_their_way -= 1
        if error is None and self._channel is not None and self._channel.is_open:
            self._link.send_frames(frames.ack(delivery.channel, delivery.tag))
            self._sent += 1
        self._next()
