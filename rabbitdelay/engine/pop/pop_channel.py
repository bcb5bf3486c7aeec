"""A pop request, and a channel that serves one pop request after the other."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.deletes.delete_check import Liveness
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Channel


class PopChannelOwner(Protocol):
    """The owner of the channels, which is notified of what they receive.

    The popper implements it, and cannot be imported here, because it imports this file.
    """

    consumer: Consumer

    def got(self, request: "PopRequest", lease: Lease) -> None:
        """Add a job to a pop."""

    def liveness(self, lease: Lease) -> Liveness | Death:
        """Return whether a job may be handed out; drop it if it is dead."""

    def suspend(self, request: "PopRequest") -> None:
        """Stop serving a pop until jobs can be handed out again."""

    def waits(self, request: "PopRequest") -> bool:
        """Return whether a pop for which no job is ready goes on waiting; end it if not."""

    def linger(self, request: "PopRequest") -> None:
        """End a pop when no further job arrives for a moment."""

    def end(self, request: "PopRequest") -> None:
        """End a pop with the jobs that it has."""

    def begin_again(self, request: "PopRequest") -> None:
        """Serve a pop again, because one of its queues was deleted."""

    def idle(self, channel: "PopChannel") -> None:
        """Take back a channel that has no pop to serve."""


class PopRequest:
    """One call of pop."""

    def __init__(self, topics: Sequence[str], most: int, deadline: float | None) -> None:
        self.topics = topics
        self.most = most
        self.deadline = deadline
        """Monotonic time at which the pop stops waiting; None if it waits without limit."""
        self.future: Future[list[Lease]] = Future()
        self.future.set_running_or_notify_cancel()
        self.leases: list[Lease] = []
        self.channel: PopChannel | None = None
        self.timer: object = None
        self.linger_timer: object = None
        self.look_timer: object = None
        self.missing_topics: Sequence[str] = ()
        """The topics that did not exist when they were last looked for."""
        self.is_over = False
        self.began_again = False
        self.is_suspended = False
        """Whether the pop is not being served, until the log of deletes or a pause changes."""
        self.is_any_paused = False
        """Whether one of its topics is paused."""

    @property
    def missing(self) -> int:
        """Number of further jobs that the pop accepts."""
        return self.most - len(self.leases)


class PopChannel:
    """A channel that serves one pop after the other. The jobs received on it are acked on it."""

    def __init__(self, popper: PopChannelOwner) -> None:
        self._popper = popper
        self._consumer = popper.consumer
        self._channel: Channel | None = None
        self._prefetch = 0
        self._request: PopRequest | None = None
        self._served: Sequence[str] = ()
        """The topics of the pop that are not paused."""
        self._untried: deque[str] = deque()
        self._found: list[str] = []
        """The topics that had a job, and may have more."""
        self._getting: str | None = None
        self._topics: dict[str, str] = {}
        """The topics that are being consumed, by consumer tag."""
        self._surplus: list[Lease] = []
        """The jobs that arrived for a pop that was over."""
        self._unproven: list[tuple[Lease, str | None]] = []
        """The jobs that wait for proof; each with its topic if it was received by basic.get."""
        self._is_ending = False
        """Whether the consumers of a pop that is over are being cancelled."""
        self.number = 0

    def open(self, then: Callable[[], None]) -> None:
        """Open the channel, then call `then`."""

        def opened(channel: Channel) -> None:
            self._channel = channel
            self.number = channel.number
            channel.on_cancelled(self._queue_gone)
            then()

        self._consumer.channels.open(opened, self._inbound)

    def begin(self, request: PopRequest, topics: Sequence[str]) -> None:
        """Serve a pop."""
        if request.is_over or request.channel is not None:
            self._popper.idle(self)
            return
        self._request = request
        request.channel = self
        self._served = topics
        self._untried = deque(topics)
        self._found = []
        self._get_next()

    def leave(self) -> None:
        """Stop serving the current pop, which continues elsewhere."""
        self._request = None
        self.stop()

    @property
    def is_unproven(self) -> bool:
        """Whether a job waits for the proof that it was not deleted."""
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
        """End serving the current pop: cancel its consumers, and become ready for the next pop."""
        self._surplus += [lease for lease, _ in self._unproven]
        self._unproven.clear()
        if self._getting is not None or self._is_ending:
            return  # a reply is outstanding
        if self._topics:
            self._cancel_next()
        else:
            self._rest()

    def _rest(self) -> None:
        self._is_ending = False
        self._request = None
        surplus, self._surplus = self._surplus, []
        for lease in surplus:
            self._consumer.settlement.hand_back(lease)
        self._popper.idle(self)

    # By basic.get

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
        lease = self._consumer.jobs.read(delivery, topic)
        if lease is None:
            self._untried.appendleft(topic)  # not a job; one may follow in the queue
            self._get_next()
            return
        if request is None or request.is_over:
            self._surplus.append(lease)
            self.stop()
            return
        self._judge(request, lease, topic)

    def _judge(self, request: PopRequest, lease: Lease, got_from: str | None) -> None:
        """Hand out a job, drop it, or keep it until the proof is there."""
        liveness = self._popper.liveness(lease)
        if liveness is Liveness.UNPROVEN:
            self._unproven.append((lease, got_from))
        elif liveness is Liveness.WAIT:
            self._surplus.append(lease)
            self._popper.suspend(request)
        elif got_from is not None:
            self._go_on_getting(request, lease, got_from, lives=liveness is Liveness.ALIVE)
        elif liveness is Liveness.ALIVE:
            self._popper.got(request, lease)
            if not request.is_over:
                self._popper.linger(request)

    def _go_on_getting(self, request: PopRequest, lease: Lease, topic: str, *, lives: bool) -> None:
        if lives:
            self._found.append(topic)
            self._popper.got(request, lease)
        else:
            self._untried.appendleft(topic)
        if not request.is_over:
            self._get_next()

    # By consumers

    def _consume(self, topics: Sequence[str]) -> None:
        request, channel = self._request, self._channel
        assert request is not None
        assert channel is not None
        if not channel.is_open:
            return  # the connection is about to be lost, which is handled elsewhere
        share = max(1, request.missing // len(topics))
        if self._prefetch != share:
            self._prefetch = share
            channel.qos(share)
        for topic in topics:
            queue = self._consumer.topology.ready_queue(topic)
            tag = channel.consume(queue, {}, self._consuming)
            self._topics[tag] = topic

    def _consuming(self) -> None:
        """Handle the start of a consumer.

        A pop that has a job already gets only further jobs that are ready now.
        """
        request = self._request
        if request is not None and not request.is_over and request.leases:
            self._popper.linger(request)

    def _delivered(self, delivery: Delivery, tag: str) -> None:
        topic, request = self._topics.get(tag), self._request
        lease = None if topic is None else self._consumer.jobs.read(delivery, topic)
        if lease is None:
            return
        if request is None or request.is_over:
            self._surplus.append(lease)
            return
        self._judge(request, lease, None)

    def _cancel_next(self) -> None:
        """Cancel one consumer at a time, because pika calls all callbacks at the first reply."""
        assert self._channel is not None
        self._is_ending = True
        tag = next(iter(self._topics), None)
        if tag is None:
            self._rest()
        elif self._channel.is_open:  # if not, the connection is about to be lost
            self._channel.cancel(tag, lambda: self._cancelled(tag))

    def _cancelled(self, tag: str) -> None:
        self._topics.pop(tag, None)
        self._cancel_next()

    def _queue_gone(self, tag: str) -> None:
        """Serve the pop again, because a queue was deleted; that declares it again."""
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
