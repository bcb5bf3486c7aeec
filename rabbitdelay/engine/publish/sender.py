"""Publish the messages of the outbox: on the main channel, or on the channel of their lane."""

from rabbitdelay.core.publish import lanes
from rabbitdelay.core.publish.lanes import MAIN, Lane
from rabbitdelay.core.publish.pending import Pending
from rabbitdelay.core.publish.publish_route import PublishRoute
from rabbitdelay.engine.confirms.alarm import Alarm
from rabbitdelay.engine.confirms.confirm_channel import ConfirmChannel
from rabbitdelay.engine.confirms.outgoing import Outgoing
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.publish.message_router import MessageRouter


class Sender:
    """Publishes what is ready, on the transport's thread."""

    def __init__(
        self, connector: Connector, outgoing: Outgoing, router: MessageRouter, alarm: Alarm
    ) -> None:
        self._connector = connector
        self._outbox = outgoing.outbox
        self._lanes = outgoing.lanes
        self._channels = outgoing.channels
        self._router = router
        self._alarm = alarm

    def flush(self) -> None:
        """Publish all ready messages in one write, because a system call costs more than a put."""
        connection = self._connector.open_connection
        if connection is None or self._alarm.reason is not None:
            return
        now = self._connector.monotonic()
        pieces: list[bytes] = []
        main = self._channels.current(MAIN)
        if main is not None and main.is_ready:
            while (pending := self._outbox.next()) is not None:
                self._publish_or_set_aside(pending, main, now, pieces)
        for lane in self._lanes.all():
            self._publish_lane(lane, now, pieces)
        if pieces:
            connection.send_frames(b"".join(pieces))

    def _publish_or_set_aside(
        self, pending: Pending, main: ConfirmChannel, now: float, pieces: list[bytes]
    ) -> None:
        """Add the frames of a message, unless it has to wait or needs a lane of its own."""
        route = self._router.route(pending, now)
        if route is None:
            return
        if pending.closures or route.lane in self._lanes or route.is_stream:
            self._set_aside(pending, route)
        else:
            pieces.append(main.publish(pending, route, now))

    def _set_aside(self, pending: Pending, route: PublishRoute) -> None:
        name = route.lane
        if pending.closures:
            name = lanes.SUSPECTS if pending.closures == 1 else lanes.SUSPECT
        self._lanes.open(name, is_stream=route.is_stream)
        self._outbox.set_aside(name, pending)

    def _publish_lane(self, lane: Lane, now: float, pieces: list[bytes]) -> None:
        """Add the frames of the messages that a lane may publish now."""
        if now < lane.backs_off_until or not self._outbox.has_aside(lane.name):
            return
        channel = self._channels.current(lane.name)
        if channel is None:
            self._channels.open(lane.name)
            return
        while channel.is_ready and len(channel.flight) < lane.limit:
            pending = self._outbox.next_aside(lane.name)
            if pending is None:
                break
            if (route := self._router.route(pending, now)) is not None:
                pieces.append(channel.publish(pending, route, now))
