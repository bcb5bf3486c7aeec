"""Replies: the responses that one client waits for, in a queue of its own."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from threading import Condition
from typing import Any

from pika.channel import Channel

from rabbitdelay.core import frames, responses
from rabbitdelay.core.deliveries import Delivery, GetEmpty
from rabbitdelay.core.lease import Lease
from rabbitdelay.core.responses import Response
from rabbitdelay.errors import ClientClosed, ConnectionFailed, JobBuried
from rabbitdelay.models import Job
from rabbitdelay.sync.connection import logger
from rabbitdelay.sync.consumer import Consumer

MOST_KEPT = 10_000
"""So many responses are kept that nobody has asked for yet; then the oldest go."""
PREFETCH = 500
RETRY_SECONDS = 2.0

Key = tuple[str, str]
Found = Response | JobBuried


class Replies:
    """Consumes the client's reply queue; everything on the I/O thread but `start` and `wait`."""

    def __init__(self, consumer: Consumer, name: str) -> None:
        self._consumer = consumer
        self._part = consumer.topology.replies(name)
        self._wanted = False
        self._channel_number = 0
        self._is_opening = False
        self._ready: Future[None] = Future()
        self._changed = Condition()
        self._found: OrderedDict[Key, Found] = OrderedDict()
        self._closed = False

    # From any thread

    @property
    def queue(self) -> str:
        """What jobs whose responses are wanted carry as reply_to."""
        return self._part.queue.name

    def start(self, timeout: float) -> None:
        """Consume; return when responses would arrive."""
        if self._ready.done() and self._ready.exception() is not None:
            self._ready, self._wanted = Future(), False  # it may work by now
        if not self._ready.done():
            self._consumer.call(self._want)
        try:
            self._ready.result(timeout)
        except FutureTimeout:
            error = self._consumer.first.error
            raise error or ConnectionFailed("the broker does not answer") from None

    def wait(self, job: Job, deadline: float | None) -> Response | None:
        """Wait for the response to a job; None when none came until the deadline."""
        key = (job.id, job.token)
        with self._changed:
            while key not in self._found:
                if self._closed:
                    raise ClientClosed("the client was closed before the response came")
                rest = None if deadline is None else deadline - time.monotonic()
                if rest is not None and rest <= 0:
                    return None
                self._changed.wait(rest)
            found = self._found.pop(key)
        if isinstance(found, JobBuried):
            raise found
        return found

    # On the I/O thread

    def _want(self) -> None:
        if not self._wanted:
            self._wanted = True
            self.connected()

    def connected(self) -> None:
        """Consume the queue; it is made anew when the client was away for too long."""
        if self._wanted and not self._is_opening:
            self._is_opening = True
            self._consumer.make((self._part,), self._made)

    def _made(self, error: Exception | None) -> None:
        if error is None:
            self._consumer.open_channel(self._opened, self._inbound)
            return
        self._is_opening = False
        if self._ready.done():
            logger.warning("no responses: %s", error)
            self._consumer.call_later(RETRY_SECONDS, self.connected)
        else:
            self._ready.set_exception(error)

    def _opened(self, channel: Channel) -> None:
        self._channel_number = channel.channel_number
        channel.add_on_cancel_callback(partial(self._queue_gone, channel))
        channel.basic_qos(prefetch_count=PREFETCH)
        # pika is never told of a delivery: it is read before pika sees it.
        channel.basic_consume(self.queue, lambda *_: None, callback=self._consuming)

    def _consuming(self, _frame: object) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if isinstance(found, GetEmpty):
            return
        message = found.message
        token = message.headers.get("rd-token")
        key = (message.correlation_id or "", token if isinstance(token, str) else "")
        with self._changed:
            self._found[key] = responses.read(message)
            if len(self._found) > MOST_KEPT:
                self._found.popitem(last=False)
            self._changed.notify_all()
        self._consumer.send(frames.ack(found.channel, found.tag))

    def _queue_gone(self, channel: Channel, _frame: Any) -> None:  # noqa: ANN401 - pika's frame
        self._consumer.forget_made()
        self._consumer.lose_channel(channel)
        if channel.is_open:
            channel.close()
        self._is_opening = False
        self._consumer.call_later(RETRY_SECONDS, self.connected)

    def disconnected(self, _error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """It is consumed again with the next connection."""
        self._is_opening = False

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """If it was ours, consume again."""
        if number == self._channel_number:
            self._is_opening = False
            logger.warning("the broker closed the channel of responses: %s", error)
            self._consumer.call_later(RETRY_SECONDS, self.connected)

    def expired(self, _leases: Sequence[Lease]) -> None:
        """Responses have no ttr."""

    def read(self) -> None:
        """Nothing more to do."""

    def closed(self) -> None:
        """Nothing will come any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if not self._ready.done():
            self._ready.set_exception(ClientClosed("the client was closed"))
