"""Serve calls of pop: reserve one job for a caller, or several at once.

If jobs are ready, a pop is one basic.get per topic, followed by consumers if it wants more jobs. If
none is ready, a pop is a consumer that is cancelled as soon as enough jobs have arrived. The broker
sends a job the moment it becomes ready, and jobs that were not requested are not kept.

Surplus jobs are requeued once, after all consumers are cancelled. If they were requeued earlier,
the broker would deliver them here again, and RabbitMQ 3.10 counts each delivery: at the delivery
limit the job would be buried.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.deletes.delete_check import Liveness
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.pop.pop_channel import PopChannel, PopRequest
from rabbitdelay.errors import ClientClosed, ConnectionFailed, CutOff, NamespaceMissing

LOOK_SECONDS = 1.0
TOPIC_SECONDS = 0.5
"""Interval at which a pop looks for a topic that does not exist yet; a put or a worker creates
it."""
LINGER_SECONDS = 0.03
"""Wait for the next job after the last one, in a pop of several; ready jobs arrive in a burst."""
LINGER_MOST_SECONDS = 0.2
"""Maximum total of such waits, because the ttr of the first job has started."""
MAX_CHANNELS = 1_000
"""Maximum number of pops served at once; a connection has 2,047 channels, and others are needed."""
MAX_AT_ONCE = 65_535
"""The largest prefetch, which has 16 bits."""


class Popper:
    """The pops of one client. Everything but `pop` runs on the transport's thread."""

    def __init__(self, consumer: Consumer, log_reader: LogReader) -> None:
        self.consumer = consumer
        self._log_reader = log_reader
        log_reader.status.watch(self._may_have_changed)
        self._pops: set[PopRequest] = set()
        self._idle: deque[PopChannel] = deque()
        self._channels: set[PopChannel] = set()
        """All channels, including those that are being opened."""
        self._without_channel: deque[PopRequest] = deque()
        self._turn = 0

    # From any thread

    def pop(self, topics: Sequence[str], most: int, deadline: float | None) -> Flow[list[Lease]]:
        """Reserve jobs, and wait for them. If the caller stops waiting, they are requeued."""
        request = PopRequest(topics, most, deadline)
        if not self.consumer.call(partial(self._begin, request)):
            raise ClientClosed("the client is closed")
        try:
            return (yield from self._result(request))
        except BaseException:
            self.consumer.call(partial(self._abandon, request))
            raise

    def _result(self, request: PopRequest) -> Flow[list[Lease]]:
        """Wait for the jobs; also notice the death of the transport's thread."""
        while True:
            try:
                leases: list[Lease] = yield Wait(request.future, LOOK_SECONDS)
            except TimeoutError:
                if self.consumer.has_ended and not request.future.done():
                    raise ClientClosed("the client was closed") from None
            else:
                return leases

    # On the transport's thread

    def _begin(self, request: PopRequest) -> None:
        self._pops.add(request)
        if request.deadline is not None and self.has_time(request):
            rest = request.deadline - self.consumer.monotonic()
            request.timer = self.consumer.call_later(max(0.0, rest), partial(self.end, request))
        self._go(request)

    def begin_again(self, request: PopRequest) -> None:
        """Serve a pop again, because one of its queues was deleted."""
        request.channel = None
        self.consumer.queues.forget()
        self._go(request)

    def _go(self, request: PopRequest) -> None:
        """Find the existing topics and assign a channel."""
        request.is_suspended = False
        if self.consumer.first.error is not None:
            self._when_disconnected(request, self.consumer.first.error)
            return
        failure = self._log_reader.status.failure
        if failure is not None and not isinstance(failure, NamespaceMissing):
            self._fail(request, failure)
            return
        if not self._log_reader.is_current or not self._topics(request):
            self._wait_for_change(request)
            return
        self._log_reader.check.prepare()
        self.consumer.queues.find(self._parts(request.topics), partial(self._found, request))

    def _parts(self, topics: Sequence[str]) -> list[Part]:
        return [part for topic in topics for part in self.consumer.topology.topic(topic)]

    def _found(self, request: PopRequest, found: Sequence[Part] | Exception) -> None:
        """Repair topics of which one queue is missing; do not create topics that have neither."""
        if isinstance(found, Exception):
            self._fail(request, found)
            return
        there = set(map(_name, found))
        queues = {topic: set(map(_name, self._parts([topic]))) for topic in request.topics}
        damaged = [topic for topic, names in queues.items() if names & there and names - there]
        if damaged:
            self.consumer.queues.make(self._parts(damaged), partial(self._made_whole, request))
            return
        request.missing_topics = [topic for topic, names in queues.items() if not names & there]
        self._look_later(request)
        self._take_channel(request)

    def _made_whole(self, request: PopRequest, error: Exception | None) -> None:
        if error is not None:
            self._fail(request, error)
        elif not request.is_over:
            self._go(request)

    def _topics(self, request: PopRequest) -> list[str]:
        """Return the topics of a pop that are not paused."""
        topics = [topic for topic in request.topics if not self._log_reader.known.is_paused(topic)]
        request.is_any_paused = len(topics) < len(request.topics)
        return topics

    def _wait_for_change(self, request: PopRequest) -> None:
        request.is_suspended = True
        if request.leases or not self.has_time(request):
            self.end(request)

    def _may_have_changed(self) -> None:
        """Handle a change: the log of deletes was read or cut off, or a topic paused or resumed."""
        for request in list(self._pops):
            if request.channel is not None and (request.is_any_paused or self._is_paused(request)):
                self.suspend(request)
            elif request.is_suspended:
                self._go(request)
            elif request.channel is not None:
                request.channel.judge_again()

    def _is_paused(self, request: PopRequest) -> bool:
        return any(map(self._log_reader.known.is_paused, request.topics))

    def _take_channel(self, request: PopRequest) -> None:
        if request.is_over or request.channel is not None:
            return
        missing = request.missing_topics
        topics = self._rotated([one for one in self._topics(request) if one not in missing])
        if not topics:
            self._wait_for_change(request)
        elif self._idle:
            self._idle.pop().begin(request, topics)
        elif len(self._channels) >= MAX_CHANNELS:
            self._without_channel.append(request)
        else:
            channel = PopChannel(self)
            self._channels.add(channel)
            channel.open(partial(channel.begin, request, topics))

    # Topics that do not exist yet

    def _look_later(self, request: PopRequest) -> None:
        if request.missing_topics and request.look_timer is None and self.has_time(request):
            look = partial(self._look, request)
            request.look_timer = self.consumer.call_later(TOPIC_SECONDS, look)

    def _look(self, request: PopRequest) -> None:
        request.look_timer = None
        if not request.is_over:
            missing = self._parts(request.missing_topics)
            self.consumer.queues.find(missing, partial(self._looked, request))
            self._look_later(request)

    def _looked(self, request: PopRequest, found: Sequence[Part] | Exception) -> None:
        """Serve a pop again if one of its missing topics exists by now."""
        if not request.is_over and not isinstance(found, Exception) and found:
            self.suspend(request)

    def _rotated(self, topics: Sequence[str]) -> Sequence[str]:
        """Return the topics with another one first each time, so that none is always last."""
        self._turn += 1
        shift = self._turn % max(1, len(topics))
        return (*topics[shift:], *topics[:shift])

    # Called by the channels

    def has_time(self, request: PopRequest) -> bool:
        """Whether a pop may wait longer."""
        return request.deadline is None or request.deadline > self.consumer.monotonic()

    def waits(self, request: PopRequest) -> bool:
        """Return whether a pop for which no job is ready goes on waiting; end it if not."""
        if not self.has_time(request):
            self.end(request)
        return not request.is_over

    def liveness(self, lease: Lease) -> Liveness | Death:
        """Return whether a job may be handed out; drop it if it is dead."""
        liveness = self._log_reader.check.liveness(lease)
        if isinstance(liveness, Death):
            self.consumer.settlement.drop(lease, liveness)
        return liveness

    def suspend(self, request: PopRequest) -> None:
        """Stop serving a pop until jobs can be handed out again."""
        channel, request.channel = request.channel, None
        if channel is not None:
            channel.leave()
        self._go(request)

    def got(self, request: PopRequest, lease: Lease) -> None:
        """Add a job to a pop."""
        self.consumer.settlement.reserve(lease)
        request.leases.append(lease)
        if len(request.leases) == request.most:
            self.end(request)

    def linger(self, request: PopRequest) -> None:
        """End a pop when no further job arrives for a moment."""
        if request.linger_timer is None:
            until = self.consumer.monotonic() + LINGER_MOST_SECONDS
            self._linger_on(request, until)

    def idle(self, channel: PopChannel) -> None:
        """Take back a channel that has no pop to serve."""
        self._idle.append(channel)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Give free channels to the pops that wait for one and still need it."""
        while self._without_channel and (self._idle or len(self._channels) < MAX_CHANNELS):
            self._take_channel(self._without_channel.popleft())

    # Ending

    def _linger_on(self, request: PopRequest, until: float) -> None:
        look = partial(self._end_if_still, request, len(request.leases), until)
        request.linger_timer = self.consumer.call_later(LINGER_SECONDS, look)

    def _end_if_still(self, request: PopRequest, count: int, until: float) -> None:
        request.linger_timer = None
        if len(request.leases) == count or self.consumer.monotonic() >= until:
            self.end(request)
        else:
            self._linger_on(request, until)

    def end(self, request: PopRequest) -> None:
        """End a pop with the jobs that it has."""
        if request.is_over:
            return
        error = self.consumer.first.error or self._cut_off(request)
        if not request.leases and error is not None:
            self._fail(request, error)
            return
        self._stop(request)
        request.future.set_result(request.leases)

    def _cut_off(self, request: PopRequest) -> Exception | None:
        """Return the error if the log of deletes prevents handing out jobs; else None."""
        if not self._log_reader.is_current:
            return self._log_reader.status.failure or CutOff(self._log_reader.status.text)
        if request.channel is not None and request.channel.is_unproven:
            return CutOff(
                "a job is ready, but whether it was deleted is unknown, because the log of deletes "
                "does not answer"
            )
        return None

    def _fail(self, request: PopRequest, error: Exception) -> None:
        if not request.is_over:
            self._stop(request)
            request.future.set_exception(error)

    def _stop(self, request: PopRequest) -> None:
        request.is_over = True
        self._pops.discard(request)
        if request.timer is not None:
            self.consumer.cancel(request.timer)
        if request.look_timer is not None:
            self.consumer.cancel(request.look_timer)
        self._stop_lingering(request)
        if request.channel is not None:
            request.channel.stop()

    def _stop_lingering(self, request: PopRequest) -> None:
        if request.linger_timer is not None:
            self.consumer.cancel(request.linger_timer)
            request.linger_timer = None

    def _abandon(self, request: PopRequest) -> None:
        self._fail(request, ClientClosed("the caller stopped waiting"))
        for lease in request.leases:
            self.consumer.settlement.hand_back(lease)

    def _when_disconnected(self, request: PopRequest, error: ConnectionFailed) -> None:
        """Wait for the next connection, if there is time left."""
        request.channel = None
        request.leases.clear()
        self._stop_lingering(request)
        if not self.has_time(request):
            self._fail(request, error)

    # Called by the consumer

    def connected(self) -> None:
        """Serve the waiting pops again."""
        for request in list(self._pops):
            self._go(request)

    def disconnected(self, error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """Forget the channels, which were lost with the connection."""
        self._idle.clear()
        self._without_channel.clear()
        self._channels.clear()
        for request in list(self._pops):
            self._when_disconnected(request, error)

    def closed(self) -> None:
        """Fail all pops."""
        for request in list(self._pops):
            if request.channel is not None:
                self.consumer.call(request.channel.stop)  # has no effect if the thread has ended
                request.channel = None
            self._fail(request, ClientClosed("the client was closed"))

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """Handle a channel that the broker closed.

        Its queue was deleted, or a job was unacked for too long.
        """
        self._idle = deque(channel for channel in self._idle if channel.number != number)
        self._channels = {channel for channel in self._channels if channel.number != number}
        for request in list(self._pops):
            if request.channel is not None and request.channel.number == number:
                self._begin_again_once(request, error)
        self._serve_waiting()

    def _begin_again_once(self, request: PopRequest, error: Exception) -> None:
        request.channel = None
        request.leases.clear()
        if request.began_again:
            self._fail(request, error)
        else:
            request.began_again = True
            self._go(request)

    def expired(self, _expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing: the caller gets LeaseLost when it settles the job."""

    def read(self) -> None:
        """Do nothing: deliveries are handled one by one."""


def _name(part: Part) -> str:
    return part.queue.name
