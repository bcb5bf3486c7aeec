"""A slot: a channel that serves one pop after the other, and a pop that it serves."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.deletes.view import Verdict
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Channel


class Owner(Protocol):
    """Who has the slots, and is told what they find."""

    consumer: Consumer

    def got(self, request: "Pop", lease: Lease) -> None:
        """A job has come for a pop."""

    def verdict(self, lease: Lease) -> Verdict:
        """Whether a job may be handed out; one that is dead is settled."""

    def suspend(self, request: "Pop") -> None:
        """Nothing can be handed out now: wait until that has changed."""

    def waits(self, request: "Pop") -> bool:
        """Nothing was ready: go on waiting, or end it."""

    def linger(self, request: "Pop") -> None:
        """End it when no other job has come for a moment."""

    def end(self, request: "Pop") -> None:
        """There is no more than it has."""

    def begin_again(self, request: "Pop") -> None:
        """What it needs has vanished."""

    def idle(self, slot: "Slot") -> None:
        """This one can be used again."""


class Pop:
    """One call of pop."""

    def __init__(self, topics: Sequence[str], most: int, deadline: float | None) -> None:
        self.topics = topics
        self.most = most
        self.deadline = deadline
        """When to stop waiting, on the monotonic clock; None is never."""
        self.future: Future[list[Lease]] = Future()
        self.future.set_running_or_notify_cancel()
        self.leases: list[Lease] = []
        self.slot: Slot | None = None
        self.timer: object = None
        self.linger_timer: object = None
        self.look_timer: object = None
        self.missing_topics: Sequence[str] = ()
        """Its topics that did not exist when it was last looked for them."""
        self.is_over = False
        self.began_again = False
        self.is_suspended = False
        """Whether it is served by nobody, until something has changed."""
        self.leaves_out = False
        """Whether one of its topics is paused."""

    @property
    def missing(self) -> int:
        """How many more it takes."""
        return self.most - len(self.leases)


class Slot:
    """A channel that serves one pop after the other. The jobs it brought are acked on it."""

    def __init__(self, popper: Owner) -> None:
        self._popper = popper
        self._consumer = popper.consumer
        self._channel: Channel | None = None
        self._prefetch = 0
        self._request: Pop | None = None
        self._served: Sequence[str] = ()
        """The topics of the pop that are not paused."""
        self._untried: deque[str] = deque()
        self._found: list[str] = []
        """Those that had a job: they may have more."""
        self._getting: str | None = None
        self._topics: dict[str, str] = {}
        """Those that are being consumed, by consumer tag."""
        self._surplus: list[Lease] = []
        """What came for a pop that was over."""
        self._unproven: list[tuple[Lease, str | None]] = []
        """The jobs that wait for proof, each with its topic if it was got and not consumed."""
        self.number = 0

    def open(self, then: Callable[[], None]) -> None:
        """Open the channel, and go on."""

        def opened(channel: Channel) -> None:
            self._channel = channel
            self.number = channel.number
            channel.on_cancelled(self._queue_gone)
            then()

        self._consumer.open_channel(opened, self._inbound)

    def begin(self, request: Pop, topics: Sequence[str]) -> None:
        """Serve a pop."""
        if request.is_over:
            self._popper.idle(self)
            return
        self._request = request
        request.slot = self
        self._served = topics
        self._untried = deque(topics)
        self._found = []
        self._get_next()

    def leave(self) -> None:
        """Serve this pop no more, which goes on elsewhere."""
        self._request = None
        self.stop()

    @property
    def is_unproven(self) -> bool:
        """Whether a job is at hand that waits for proof that it was not deleted."""
        return bool(self._unproven)

    def judge_again(self) -> None:
        """Hand out the jobs that waited for proof, if there is proof by now."""
        unproven, self._unproven = self._unproven, []
        for lease, got_from in unproven:
            request = self._request
            if request is None or request.is_over:
                self._surplus.append(lease)
            else:
                self._judge(request, lease, got_from)
        if unproven and (self._request is None or self._request.is_over):
            self.stop()

    def stop(self) -> None:
        """The pop is over: cancel what was begun for it, and be ready for the next one."""
        self._surplus += [lease for lease, _ in self._unproven]
        self._unproven.clear()
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
        if request is None or request.is_over:
            self.stop()
        elif self._untried:
            self._getting = self._untried.popleft()
            queue = self._consumer.topology.ready_queue(self._getting)
            self._consumer.send(encode.get(self.number, queue))
        elif self._found:
            self._consume(self._found[: request.missing])
        elif request.leases:
            self._popper.end(request)
        elif self._popper.waits(request):
            self._consume(self._served)

    def _got(self, delivery: Delivery) -> None:
        topic, request = self._getting, self._request
        self._getting = None
        assert topic is not None
        lease = self._consumer.read_job(delivery, topic)
        if lease is None:
            self._untried.appendleft(topic)  # it was none: there may be another behind it
            self._get_next()
            return
        if request is None or request.is_over:
            self._surplus.append(lease)
            self.stop()
            return
        self._judge(request, lease, topic)

    def _judge(self, request: Pop, lease: Lease, got_from: str | None) -> None:
        """Hand out a job, drop it, or keep it until that can be told."""
        verdict = self._popper.verdict(lease)
        if verdict is Verdict.UNPROVEN:
            self._unproven.append((lease, got_from))
        elif verdict is Verdict.WAIT:
            self._surplus.append(lease)
            self._popper.suspend(request)
        elif got_from is not None:
            self._go_on_getting(request, lease, got_from, lives=verdict is Verdict.LIVES)
        elif verdict is Verdict.LIVES:
            self._popper.got(request, lease)
            if not request.is_over:
                self._popper.linger(request)

    def _go_on_getting(self, request: Pop, lease: Lease, topic: str, *, lives: bool) -> None:
        if lives:
            self._found.append(topic)
            self._popper.got(request, lease)
        else:
            self._untried.appendleft(topic)
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
            channel.qos(share)
        for topic in topics:
            queue = self._consumer.topology.ready_queue(topic)
            tag = channel.consume(queue, {}, self._consuming)
            self._topics[tag] = topic

    def _consuming(self) -> None:
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
        self._judge(request, lease, None)

    def _cancel_next(self) -> None:
        """Cancel one after the other: pika calls every callback at the first answer."""
        assert self._channel is not None
        tag = next(iter(self._topics), None)
        if tag is None:
            self._rest()
        elif self._channel.is_open:  # else the connection is about to go
            self._channel.cancel(tag, lambda: self._cancelled(tag))

    def _cancelled(self, tag: str) -> None:
        self._topics.pop(tag, None)
        self._cancel_next()

    def _queue_gone(self, tag: str) -> None:
        """The broker cancelled a consumer: its queue was deleted. Begin again, which makes it."""
        topic, request = self._topics.pop(tag, None), self._request
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
