"""Channels on which the broker does not answer: their messages are published on other ones."""

from rabbitdelay.core.publish.lanes import MAIN
from rabbitdelay.engine.confirms.confirm_channel import ConfirmChannel
from rabbitdelay.engine.confirms.outgoing import Outgoing
from rabbitdelay.engine.confirms.stall_detector import StallDetector
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.transport import Then


class StalledChannels:
    """Finds targets that do not answer, and publishes to them on other channels.

    On the transport's thread.
    """

    def __init__(self, outgoing: Outgoing, detector: StallDetector, flush: Then) -> None:
        self._outbox = outgoing.outbox
        self._lanes = outgoing.lanes
        self._channels = outgoing.channels
        self._detector = detector
        self._flush = flush

    def look(self, now: float) -> None:
        """Look for answers that are overdue."""
        for channel in self._channels.all():
            lane = self._lanes.get(channel.lane)
            failures = 0 if lane is None else lane.failures
            stalled = self._detector.stalled_lanes(channel.flight, now, failures)
            if stalled:
                seconds = self._detector.patience_seconds(failures)
                text = "publisher: no confirm for %.0f s from %s; republishing on another channel"
                logger.warning(text, seconds, ", ".join(sorted(stalled)))
                self._replace(channel, stalled)

    def _replace(self, channel: ConfirmChannel, stalled: set[str]) -> None:
        """Publish the unconfirmed messages to these targets again, on channels of their own.

        Messages to other targets stay in flight on the old channel.
        """
        if channel.lane == MAIN:
            again = channel.flight.take_if(lambda pending: pending.lane in stalled)
            self._channels.retire(channel)
            self._channels.open_main()
        else:
            again = self._channels.remove(channel)
        for pending in reversed(again):
            self._lanes.open(pending.lane, is_stream=pending.is_for_a_stream)
            pending.closures = 0
            pending.begin_again()
            self._outbox.set_aside_first(pending.lane, pending)
        for name in stalled:
            self._lanes.open(name).stalled()
        self._flush()
