"""A channel that serves one pop after the other."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.deletes.delete_check import DeleteCheck, Liveness
from rabbitdelay.engine.pop.get_round import GetRound
from rabbitdelay.engine.pop.pop_calls import PopCalls
from rabbitdelay.engine.pop.pop_consumers import PopConsumers
from rabbitdelay.engine.pop.pop_request import PopRequest, PopState
from rabbitdelay.engine.transport import Channel, Then


class PopChannelOwner(Protocol):
    """Decides what becomes of a pop that its channel cannot serve, and of an idle channel.

    The server of pops implements it, and cannot be imported here, because it imports this file.
    """

    def serve_again(self, request: PopRequest) -> None:
        """Serve a pop from the beginning, because a job has to wait."""

    def queue_deleted(self, request: PopRequest) -> None:
        """Serve a pop again, because one of its queues was deleted."""

    def idle(self, channel: "PopChannel") -> None:
        """Take back a channel that has no pop to serve."""


class PopChannel:
    """A channel that serves one pop after the other. The jobs received on it are acked on it."""

    def __init__(
        self, consumer: Consumer, check: DeleteCheck, calls: PopCalls, owner: PopChannelOwner
    ) -> None:
        self._consumer = consumer
        self._check = check
        self._calls = calls
        self._owner = owner
        self._consumers: PopConsumers | None = None
        self._request: PopRequest | None = None
        self._round = GetRound()
        self._surplus: list[Lease] = []
        """The jobs that arrived for a pop that was over."""
        self._unproven: list[tuple[Lease, str | None]] = []
        """The jobs that wait for proof; each with its topic if it was received by basic.get."""
        self.number = 0
        """Number of the channel; 0 until it is open."""

    def open(self, then: Then) -> None:
        """Open the channel, then call `then`."""
        self._consumer.channels.open(partial(self._opened, then), self._inbound)

    def begin(self, request: PopRequest, topics: Sequence[str]) -> None:
        """Serve a pop."""
        if request.is_over or request.channel is not None:
            self._owner.idle(self)
            return
        self._request = request
        request.channel = self
        self._round = GetRound(topics)
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
            request = self._served
            if request is None:
                self._surplus.append(lease)
            else:
                self._judge(request, lease, got_from)
        # Without a surplus, a pop that is over by now has stopped this channel already: a channel
        # that became idle twice would serve two pops at once.
        if self._surplus and self._served is None:
            self.stop()

    def stop(self) -> None:
        """End serving the current pop: cancel its consumers, and become ready for the next pop."""
        self._surplus += [lease for lease, _ in self._unproven]
        self._unproven.clear()
        consumers = self._consumers
        assert consumers is not None
        if not self._round.is_asking and not consumers.are_ending:  # else a reply is outstanding
            consumers.cancel(self._rest)

    @property
    def _served(self) -> PopRequest | None:
        """The pop that still accepts jobs."""
        request = self._request
        return None if request is None or request.state is PopState.OVER else request

    def _opened(self, then: Then, channel: Channel) -> None:
        self._consumers = PopConsumers(channel, self._consumer.topology, self._consuming)
        self.number = channel.number
        channel.on_cancelled(self._queue_gone)
        then()

    def _rest(self) -> None:
        self._request = None
        surplus, self._surplus = self._surplus, []
        for lease in surplus:
            self._consumer.settlement.hand_back(lease)
        self._owner.idle(self)

    def _inbound(self, found: Delivery | GetEmpty) -> None:
        if isinstance(found, GetEmpty):
            self._round.answered()
            self._get_next()
        elif found.consumer_tag is None:
            self._got(found)
        else:
            self._delivered(found, found.consumer_tag)

    # By basic.get

    def _get_next(self) -> None:
        request = self._served
        if request is None:
            self.stop()
        elif (topic := self._round.next_topic()) is not None:
            queue = self._consumer.topology.ready_queue(topic)
            self._consumer.send(encode.get(self.number, queue))
        elif self._round.found:
            self._consume(request, self._round.found[: request.missing])
        elif request.leases:
            self._calls.end(request)
        elif self._calls.waits(request):
            self._consume(request, self._round.topics)

    def _got(self, delivery: Delivery) -> None:
        topic, request = self._round.answered(), self._served
        lease = self._consumer.jobs.read(delivery, topic)
        if lease is None:
            self._round.ask_again(topic)  # not a job; one may follow in the queue
            self._get_next()
        elif request is None:
            self._surplus.append(lease)
            self.stop()
        else:
            self._judge(request, lease, topic)

    def _judge(self, request: PopRequest, lease: Lease, got_from: str | None) -> None:
        """Hand out a job, drop it, or keep it until the proof is there."""
        liveness = self._check.liveness(lease)
        if isinstance(liveness, Death):
            self._consumer.settlement.drop(lease, liveness)
        if liveness is Liveness.UNPROVEN:
            self._unproven.append((lease, got_from))
        elif liveness is Liveness.WAIT:
            self._surplus.append(lease)
            self._owner.serve_again(request)
        elif got_from is not None:
            self._go_on_getting(request, lease, got_from, lives=liveness is Liveness.ALIVE)
        elif liveness is Liveness.ALIVE:
            self._calls.got(request, lease)
            if not request.is_over:
                self._calls.linger(request)

    def _go_on_getting(self, request: PopRequest, lease: Lease, topic: str, *, lives: bool) -> None:
        if lives:
            self._round.found.append(topic)
            self._calls.got(request, lease)
        else:
            self._round.ask_again(topic)
        if not request.is_over:
            self._get_next()

    # By consumers

    def _consume(self, request: PopRequest, topics: Sequence[str]) -> None:
        assert self._consumers is not None
        self._consumers.start(topics, request.missing)

    def _consuming(self) -> None:
        """Handle the start of a consumer.

        A pop that has a job already gets only further jobs that are ready now.
        """
        request = self._served
        if request is not None and request.leases:
            self._calls.linger(request)

    def _delivered(self, delivery: Delivery, tag: str) -> None:
        assert self._consumers is not None
        topic, request = self._consumers.topic(tag), self._served
        lease = None if topic is None else self._consumer.jobs.read(delivery, topic)
        if lease is None:
            return
        if request is None:
            self._surplus.append(lease)
        else:
            self._judge(request, lease, None)

    def _queue_gone(self, tag: str) -> None:
        """Serve the pop again, because a queue was deleted; that declares it again."""
        assert self._consumers is not None
        request = self._served
        if self._consumers.forget(tag) and request is not None:
            self._request = None
            self._owner.queue_deleted(request)
            self._consumers.cancel(self._rest)
