"""The parts that publish messages over one connection after the other, put together.

All of it runs on the transport's thread: it declares missing queues, publishes messages, and
resolves those that are confirmed, refused or timed out.
"""

from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.publish.lanes import MAIN
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.confirms.alarm import Alarm
from rabbitdelay.engine.confirms.answers import Answers
from rabbitdelay.engine.confirms.closed_channels import ClosedChannels
from rabbitdelay.engine.confirms.confirm_channel import ConfirmChannel
from rabbitdelay.engine.confirms.outgoing import Outgoing
from rabbitdelay.engine.confirms.resolver import Resolver
from rabbitdelay.engine.confirms.stall_detector import StallDetector
from rabbitdelay.engine.confirms.stalled_channels import StalledChannels
from rabbitdelay.engine.confirms.ticker import Ticker
from rabbitdelay.engine.connection import Connector, FirstConnection
from rabbitdelay.engine.publish.closing_flush import ClosingFlush
from rabbitdelay.engine.publish.message_router import MessageRouter
from rabbitdelay.engine.publish.sender import Sender
from rabbitdelay.engine.publish.window import Window
from rabbitdelay.engine.topology.declarations import Declarations
from rabbitdelay.engine.transport import Closed, Confirm, Then


class PublishingSide:
    """Keeps messages in an outbox until they are resolved; on the transport's thread."""

    def __init__(
        self,
        connector: Connector,
        routes: Routes,
        window: Window,
        first: FirstConnection,
        *,
        opened: Then,
        queues_made: Then,
    ) -> None:
        self._routes = routes
        self._window = window
        self._opened = opened
        """Called with each main channel that is ready."""
        self._outgoing = outgoing = Outgoing(connector, self)
        detector = StallDetector()
        self.alarm = alarm = Alarm(connector, detector, self._flush)
        self._resolver = resolver = Resolver(
            outgoing.outbox, window, alarm, first, self._close_if_done
        )
        self._declarations = declarations = Declarations(
            connector,
            routes,
            outgoing.outbox,
            detector,
            fail=resolver.fail,
            flush=self._flush,
            made=queues_made,
        )
        router = MessageRouter(routes, declarations)
        self._sender = sender = Sender(connector, outgoing, router, alarm)
        self._answers = answers = Answers(
            outgoing,
            routes,
            detector=detector,
            resolver=resolver,
            flush=sender.flush,
            monotonic=connector.monotonic,
        )
        self._closed_channels = ClosedChannels(
            connector, outgoing, routes, resolver=resolver, flush=sender.flush
        )
        self._ticker = Ticker(
            connector,
            outgoing,
            routes,
            resolver=resolver,
            alarm=alarm,
            answers=answers,
            declarations=declarations,
            stalled=StalledChannels(outgoing, detector, sender.flush),
        )
        self._closing = ClosingFlush(connector, outgoing.outbox, resolver, alarm)

    def publish(self) -> None:
        """Publish the messages that were submitted."""
        self._take_in()
        self._sender.flush()
        self._ticker.start()

    def connect(self) -> None:
        """Open the main channel of a new connection."""
        self._outgoing.channels.open(MAIN)

    def connection_lost(self) -> None:
        """Keep unconfirmed messages, to publish them again on the next connection."""
        self._declarations.forget()
        self._routes.forget()
        self._outgoing.connection_lost()
        self.alarm.forget()

    def begin_close(self, flush_seconds: float) -> None:
        """Close the connection when everything is confirmed, at the latest after a time."""
        self._closing.begin(flush_seconds)

    def refuse_the_rest(self) -> None:
        """Fail all messages, because nothing more can be published."""
        self._take_in()
        self._resolver.time_out(list(self._outgoing.outbox))

    # Called by the channels

    def channel_opened(self, channel: ConfirmChannel, seconds: float) -> None:
        """Publish the messages that were waiting for the channel."""
        if channel.lane == MAIN:
            self._opened()
        self._answers.opened(seconds)

    def confirmed(self, channel: ConfirmChannel, confirm: Confirm) -> None:
        """Resolve acknowledged messages, and publish nacked ones again after a backoff."""
        self._answers.confirmed(channel, confirm)

    def returned(self, channel: ConfirmChannel, returned: Returned) -> None:
        """Fail a message that cannot be routed, or retry one whose stream is missing."""
        self._answers.returned(channel, returned)

    def channel_closed(self, channel: ConfirmChannel, closed: Closed) -> None:
        """Fail the messages that the broker refused, and publish the rest on another channel."""
        self._closed_channels.closed(channel, closed)

    # Called by the parts that are made before the sender or the closing

    def _flush(self) -> None:
        self._sender.flush()

    def _close_if_done(self) -> None:
        self._closing.close_if_done()

    def _take_in(self) -> None:
        window, outbox = self._window, self._outgoing.outbox
        while window.inbox:
            outbox.add(window.take_in())
