"""Answers of the broker to a message: an ack, a nack, or the message itself."""

import random
from collections.abc import Sequence

from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.publish.lanes import MAIN, Lane
from rabbitdelay.core.publish.pending import LadderEntry, Pending, Target
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.confirms.confirm_channel import ConfirmChannel
from rabbitdelay.engine.confirms.outgoing import Outgoing
from rabbitdelay.engine.confirms.resolver import Resolver
from rabbitdelay.engine.confirms.stall_detector import StallDetector
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.transport import Confirm, Then
from rabbitdelay.errors import JobRefused
from rabbitdelay.system_time import TimeSource

REFUSED_SECONDS = 2.0
"""Seconds that a target may refuse messages on one channel before another channel is tried.

On RabbitMQ 3.10 a channel may nack everything for good once its queue has lost its leader.
"""


class Answers:
    """Handles the answers to the messages of one outbox, on the transport's thread."""

    def __init__(
        self,
        outgoing: Outgoing,
        routes: Routes,
        *,
        detector: StallDetector,
        resolver: Resolver,
        flush: Then,
        monotonic: TimeSource,
    ) -> None:
        self._outbox = outgoing.outbox
        self._lanes = outgoing.lanes
        self._channels = outgoing.channels
        self._routes = routes
        self._detector = detector
        self._resolver = resolver
        self._flush = flush
        self._monotonic = monotonic

    def opened(self, seconds: float) -> None:
        """Publish what was waiting for a channel; opening it took `seconds`."""
        self._detector.answered(seconds)
        self._flush()

    def confirmed(self, channel: ConfirmChannel, confirm: Confirm) -> None:
        """Resolve acknowledged messages, and publish nacked ones again after a backoff."""
        now = self._monotonic()
        self._resolver.answered()
        taken = channel.flight.take(confirm.tag, multiple=confirm.multiple)
        if not confirm.is_taken:
            self._refused(channel, taken, now)
            return
        if taken:
            self._detector.answered(now - taken[-1].sent_at)
        done = self._outbox.confirmed(taken, now)
        if channel.lane != MAIN:
            self._taken(channel, len(taken))
        self._channels.close_if_retired(channel)
        self._resolver.resolve(done)

    def returned(self, channel: ConfirmChannel, returned: Returned) -> None:
        """Fail a message that cannot be routed, or retry one whose stream is missing."""
        pending = channel.flight.take_returned(returned)
        if pending is None:
            return
        part = pending.route.part if isinstance(pending.route, Target) else None
        if part is not None and part.is_stream:
            # Shortly after a restart the stream is not up yet, and RabbitMQ 3.10 would confirm and
            # lose a message that is not mandatory. A stream that was deleted is declared again.
            self._routes.forget_queue(part.queue.name)
            self._refused(channel, [pending], self._monotonic())
            return
        if part is not None or isinstance(pending.route, LadderEntry):
            self._routes.forget()
        self._resolver.fail(pending, _refusal(pending, returned.text))

    def tend_lanes(self) -> None:
        """Dissolve empty lanes, and publish messages whose backoff has ended."""
        for lane in self._lanes.all():
            channel = self._channels.current(lane.name)
            in_flight = channel is not None and len(channel.flight) > 0
            if not in_flight and not self._outbox.has_aside(lane.name):
                self._dissolve(lane)
        self._flush()

    def _taken(self, channel: ConfirmChannel, count: int) -> None:
        """Publish more to a target that accepts messages; dissolve its lane after recovery."""
        lane = self._lanes.get(channel.lane)
        if lane is None:
            return
        lane.taken(count)
        if lane.has_recovered and not lane.is_for_suspects:
            self._dissolve(lane)
        if self._outbox.has_aside(lane.name) or lane.name not in self._lanes:
            self._flush()

    def _dissolve(self, lane: Lane) -> None:
        if lane.is_permanent:
            return
        self._lanes.remove(lane)
        self._outbox.bring_back(lane.name)
        if channel := self._channels.current(lane.name):
            self._channels.retire(channel)

    def _refused(self, channel: ConfirmChannel, refused: Sequence[Pending], now: float) -> None:
        """Back off from the targets that refused these messages, and only from those."""
        for pending in refused:
            pending.closures = 0  # the broker read the message without closing the channel
            lane = self._lanes.open(pending.lane, is_stream=pending.is_for_a_stream)
            lane.refused(now, random.random())  # noqa: S311 - jitter
            self._outbox.set_aside_first(lane.name, pending)
        is_own = refused and channel.lane == refused[0].lane
        if is_own and now - channel.asked_at > REFUSED_SECONDS:
            text = "publisher: %s refused messages for %.0f s; trying another channel"
            logger.warning(text, channel.lane, REFUSED_SECONDS)
            self._outbox.set_aside_first(channel.lane, *self._channels.remove(channel))
        self._channels.close_if_retired(channel)


def _refusal(pending: Pending, text: str) -> JobRefused:
    if isinstance(pending.route, Target) and pending.route.part is None:
        return JobRefused(f"there is no queue {pending.route.routing_key} ({text})")
    return JobRefused(
        f"the broker cannot route this job ({text}), and the queue for unrouted jobs is missing "
        "too: run `rabbitdelay topology apply`"
    )
