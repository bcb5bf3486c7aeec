"""Popping: jobs one by one, or several at once, for whoever asks.

With jobs at hand a pop is one basic.get of each topic, and a consumer when more are wanted. With
none, it is a consumer that is cancelled as soon as enough have come: the broker sends the job the
moment it is ready, and nothing is ever held that nobody asked for.

What comes too many goes back once, after everything is cancelled. Any earlier the broker would
send it here again, and RabbitMQ 3.10 counts each time: at the delivery limit it would be buried.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

from pika.channel import Channel

from rabbitdelay.core import frames
from rabbitdelay.core.deliveries import Delivery, GetEmpty
from rabbitdelay.core.lease import Lease
from rabbitdelay.errors import ClientClosed, ConnectionFailed
from rabbitdelay.sync.consumer import Consumer

LOOK_SECONDS = 1.0
LINGER_SECONDS = 0.03
"""How long several at once wait for the next one after the last: they come in a burst, or not."""
LINGER_MOST_SECONDS = 0.2
"""How long they wait for one another in all: the ttr of the first has begun."""
MAX_SLOTS = 1_000
"""So many pops are served at once; a connection has 2,047 channels, and others need some."""
MAX_AT_ONCE = 65_535
"""The largest prefetch: it has 16 bits."""


class Popper:
    """The pops of one client; everything on the I/O thread but `pop` and `abandon`."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._pops: set[Pop] = set()
        self._idle: deque[Slot] = deque()
        self._slots = 0
        self._without_slot: deque[Pop] = deque()
        self._turn = 0

    # From any thread

    def pop(self, topics: Sequence[str], most: int, deadline: float | None) -> "Pop":
        """Ask for jobs."""
        request = Pop(topics, most, deadline)
        if not self.consumer.call(partial(self._begin, request)):
            raise ClientClosed("the client is closed")
        return request

    def result(self, request: "Pop") -> list[Lease]:
        """Wait for what it gets; an I/O thread that has died tells nobody."""
        while True:
            try:
                return request.future.result(LOOK_SECONDS)
            except FutureTimeout:
                if self.consumer.has_ended and not request.future.done():
                    raise ClientClosed("the client was closed") from None

    def abandon(self, request: "Pop") -> None:
        """Nobody waits for this any more: what it got goes back."""
        self.consumer.call(partial(self._abandon, request))

    # On the I/O thread

    def _begin(self, request: "Pop") -> None:
        self._pops.add(request)
        if request.deadline is not None and self.has_time(request):
            rest = request.deadline - time.monotonic()
            request.timer = self.consumer.call_later(max(0.0, rest), partial(self.end, request))
        self._go(request)

    def begin_again(self, request: "Pop") -> None:
        """What it needs has vanished."""
        request.slot = None
        self.consumer.forget_made()
        self._go(request)

    def _go(self, request: "Pop") -> None:
        """Make sure that the topics are there, and take a slot."""
        if self.consumer.first.error is not None:
            self._when_disconnected(request, self.consumer.first.error)
            return
        topology = self.consumer.topology
        parts = [part for topic in request.topics for part in topology.topic(topic)]
        self.consumer.make(parts, partial(self._take_slot, request))

    def _take_slot(self, request: "Pop", error: Exception | None) -> None:
        if request.is_over:
            return
        topics = self._rotated(request.topics)
        if error is not None:
            self._fail(request, error)
        elif self._idle:
            self._idle.pop().begin(request, topics)
        elif self._slots >= MAX_SLOTS:
            self._without_slot.append(request)
        else:
            self._slots += 1
            slot = Slot(self)
            slot.open(partial(slot.begin, request, topics))

    def _rotated(self, topics: Sequence[str]) -> Sequence[str]:
        """Another topic is asked first each time, so that none is always last."""
        self._turn += 1
        shift = self._turn % len(topics)
        return (*topics[shift:], *topics[:shift])

    # What its slots tell

    def has_time(self, request: "Pop") -> bool:
        """Whether it may still wait."""
        return request.deadline is None or request.deadline > time.monotonic()

    def waits(self, request: "Pop") -> bool:
        """Nothing was ready: go on waiting, or end it."""
        if not self.has_time(request):
            self.end(request)
        return not request.is_over

    def got(self, request: "Pop", lease: Lease) -> None:
        """A job has come for it."""
        self.consumer.holding.reserve(lease)
        request.leases.append(lease)
        if len(request.leases) == request.most:
            self.end(request)

    def linger(self, request: "Pop") -> None:
        """End it when no other job has come for a moment."""
        if request.linger_timer is None:
            until = time.monotonic() + LINGER_MOST_SECONDS
            self._linger_on(request, until)

    def idle(self, slot: "Slot") -> None:
        """This one can be used again."""
        self._idle.append(slot)
        if self._without_slot:
            self._take_slot(self._without_slot.popleft(), None)

    # Ending

    def _linger_on(self, request: "Pop", until: float) -> None:
        look = partial(self._end_if_still, request, len(request.leases), until)
        request.linger_timer = self.consumer.call_later(LINGER_SECONDS, look)

    def _end_if_still(self, request: "Pop", count: int, until: float) -> None:
        request.linger_timer = None
        if len(request.leases) == count or time.monotonic() >= until:
            self.end(request)
        else:
            self._linger_on(request, until)

    def end(self, request: "Pop") -> None:
        """Hand over what it has."""
        if request.is_over:
            return
        error = self.consumer.first.error
        if not request.leases and error is not None:
            self._fail(request, error)
            return
        self._stop(request)
        request.future.set_result(request.leases)

    def _fail(self, request: "Pop", error: Exception) -> None:
        if not request.is_over:
            self._stop(request)
            request.future.set_exception(error)

    def _stop(self, request: "Pop") -> None:
        request.is_over = True
        self._pops.discard(request)
        if request.timer is not None:
            self.consumer.cancel(request.timer)
        self._stop_lingering(request)
        if request.slot is not None:
            request.slot.stop()

    def _stop_lingering(self, request: "Pop") -> None:
        if request.linger_timer is not None:
            self.consumer.cancel(request.linger_timer)
            request.linger_timer = None

    def _abandon(self, request: "Pop") -> None:
        self._fail(request, ClientClosed("nobody waits any more"))
        for lease in request.leases:
            self.consumer.holding.hand_back(lease)

    def _when_disconnected(self, request: "Pop", error: ConnectionFailed) -> None:
        """Wait for the next connection, as long as there is time."""
        request.slot = None
        request.leases.clear()
        self._stop_lingering(request)
        if not self.has_time(request):
            self._fail(request, error)

    # The connection comes and goes

    def connected(self) -> None:
        """Begin again with what waits."""
        for request in list(self._pops):
            self._go(request)

    def disconnected(self, error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """Its channels are gone."""
        self._idle.clear()
        self._without_slot.clear()
        self._slots = 0
        for request in list(self._pops):
            self._when_disconnected(request, error)

    def closed(self) -> None:
        """Nothing will come any more."""
        for request in list(self._pops):
            if request.slot is not None:
                self.consumer.call(request.slot.stop)  # unless the thread has ended
                request.slot = None
            self._fail(request, ClientClosed("the client was closed"))

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """A queue is gone, or the broker's patience with an unacked job."""
        self._idle = deque(slot for slot in self._idle if slot.number != number)
        self._slots -= 1
        for request in list(self._pops):
            if request.slot is not None and request.slot.number == number:
                self._begin_again_once(request, error)

    def _begin_again_once(self, request: "Pop", error: Exception) -> None:
        request.slot = None
        request.leases.clear()
        if request.began_again:
            self._fail(request, error)
        else:
            request.began_again = True
            self._go(request)

    def expired(self, _leases: Sequence[Lease]) -> None:
        """Whoever holds them learns of it when they settle them."""

    def read(self) -> None:
        """Nothing more to do."""


class Pop:
    """One call of pop."""

    def __init__(self, topics: Sequence[str], most: int, deadline: float | None) -> None:
        self.topics = topics
        self.most = most
        self.deadline = deadline
        """When to stop waiting, on the monotonic clock; None is never."""
        self.future: Future[list[Lease]] = Future()
        self.leases: list[Lease] = []
        self.slot: Slot | None = None
        self.timer: object = None
        self.linger_timer: object = None
        self.is_over = False
        self.began_again = False

    @property
    def missing(self) -> int:
        """How many more it takes."""
        return self.most - len(self.leases)


class Slot:
    """A channel that serves one pop after the other. The jobs it brought are acked on it."""

    def __init__(self, popper: Popper) -> None:
        self._popper = popper
        self._consumer = popper.consumer
        self._channel: Channel | None = None
        self._prefetch = 0
        self._request: Pop | None = None
        self._untried: deque[str] = deque()
        self._found: list[str] = []
        """Those that had a job: they may have more."""
        self._getting: str | None = None
        self._topics: dict[str, str] = {}
        """Those that are being consumed, by consumer tag."""
        self._surplus: list[Lease] = []
        """What came for a pop that was over."""
        self.number = 0

    def open(self, then: Callable[[], None]) -> None:
        """Open the channel, and go on."""

        def opened(channel: Channel) -> None:
            self._channel = channel
            self.number = channel.channel_number
            channel.add_on_cancel_callback(lambda frame: self._queue_gone(frame.method))
            then()

        self._consumer.open_channel(opened, self._inbound)

    def begin(self, request: Pop, topics: Sequence[str]) -> None:
        """Serve a pop."""
        if request.is_over:
            self._popper.idle(self)
            return
        self._request = request
        request.slot = self
        self._untried = deque(topics)
        self._found = []
        self._get_next()

    def stop(self) -> None:
        """The pop is over: cancel what was begun for it, and be ready for the next one."""
        if self._getting is not None:
            return  # its answer is on its way
        if self._topics:
            self._cancel_next()
        else:
            self._rest()

    def _rest(self) -> None:
        self._request = None
        surplus, self._surplus = self._surplus, []
        for lease in surplus:
            self._consumer.holding.hand_back(lease)
        self._popper.idle(self)

    # One by one

    def _get_next(self) -> None:
        request = self._request
        assert request is not None
        if request.is_over:
            self.stop()
        elif self._untried:
            self._getting = self._untried.popleft()
            queue = self._consumer.topology.ready_queue(self._getting)
            self._consumer.send(frames.get(self.number, queue))
        elif self._found:
            self._consume(self._found[: request.missing])
        elif request.leases:
            self._popper.end(request)
        elif self._popper.waits(request):
            self._consume(request.topics)

    def _got(self, delivery: Delivery) -> None:
        topic, request = self._getting, self._request
        self._getting = None
        assert topic is not None
        assert request is not None
        lease = self._consumer.read_job(delivery, topic)
        if lease is None:
            self._untried.appendleft(topic)  # it was none: there may be another behind it
            self._get_next()
            return
        if request.is_over:
            self._surplus.append(lease)
            self.stop()
            return
        self._found.append(topic)
        self._popper.got(request, lease)
        if not request.is_over:
            self._get_next()

    # As they come

    def _consume(self, topics: Sequence[str]) -> None:
        request, channel = self._request, self._channel
        assert request is not None
        assert channel is not None
        if not channel.is_open:
            return  # the connection is about to go, which is told elsewhere
        share = max(1, request.missing // len(topics))
        if self._prefetch != share:
            self._prefetch = share
            channel.basic_qos(prefetch_count=share)
        for topic in topics:
            queue = self._consumer.topology.ready_queue(topic)
            # pika is never told of a delivery: it is read before pika sees it.
            tag = channel.basic_consume(queue, lambda *_: None, callback=self._consuming)
            self._topics[tag] = topic

    def _consuming(self, _frame: object) -> None:
        """The broker sends from now on: with a job at hand, what else is there comes at once."""
        request = self._request
        if request is not None and not request.is_over and request.leases:
            self._popper.linger(request)

    def _delivered(self, delivery: Delivery, tag: str) -> None:
        topic, request = self._topics.get(tag), self._request
        lease = None if topic is None else self._consumer.read_job(delivery, topic)
        if lease is None:
            return
        if request is None or request.is_over:
            self._surplus.append(lease)
            return
        self._popper.got(request, lease)
        if not request.is_over:
            self._popper.linger(request)

    def _cancel_next(self) -> None:
        """Cancel one after the other: pika calls every callback at the first answer."""
        assert self._channel is not None
        tag = next(iter(self._topics), None)
        if tag is None:
            self._rest()
        elif self._channel.is_open:  # else the connection is about to go
            self._channel.basic_cancel(tag, callback=lambda _: self._cancelled(tag))

    def _cancelled(self, tag: str) -> None:
        self._topics.pop(tag, None)
        self._cancel_next()

    def _queue_gone(self, method: Any) -> None:  # noqa: ANN401 - pika's method
        """The broker cancelled a consumer: its queue was deleted. Begin again, which makes it."""
        topic, request = self._topics.pop(method.consumer_tag, None), self._request
        if topic is not None and request is not None and not request.is_over:
            self._request = None
            self._popper.begin_again(request)
            self._cancel_next()

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if isinstance(found, GetEmpty):
            self._getting = None
            self._get_next()
        elif found.consumer_tag is None:
            self._got(found)
        else:
            self._delivered(found, found.consumer_tag)
