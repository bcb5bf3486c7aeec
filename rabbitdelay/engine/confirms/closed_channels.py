"""Channels that the broker closed: which messages it refused, and which are published again."""

from collections.abc import Sequence

from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.publish.lanes import MAIN, SUSPECT
from rabbitdelay.core.publish.pending import Pending
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.confirms.confirm_channel import ConfirmChannel
from rabbitdelay.engine.confirms.outgoing import Outgoing
from rabbitdelay.engine.confirms.resolver import Resolver
from rabbitdelay.engine.connection import Connector, logger
from rabbitdelay.engine.transport import Closed, Then
from rabbitdelay.errors import InvalidJob, JobRefused

REOPEN_SECONDS = 0.25
"""Wait before a new channel if the broker closes channels in quick succession."""


class ClosedChannels:
    """Replaces the channels that the broker closes, on the transport's thread."""

    def __init__(
        self,
        connector: Connector,
        outgoing: Outgoing,
        routes: Routes,
        *,
        resolver: Resolver,
        flush: Then,
    ) -> None:
        self._connector = connector
        self._outbox = outgoing.outbox
        self._lanes = outgoing.lanes
        self._channels = outgoing.channels
        self._routes = routes
        self._resolver = resolver
        self._flush = flush
        self._closed_at = 0.0
        """Monotonic time at which the broker last closed a channel."""

    def closed(self, channel: ConfirmChannel, closed: Closed) -> None:
        """Fail the messages that the broker refused, and publish the rest on another channel."""
        logger.warning("publisher: channel closed by the broker (%d %s)", closed.code, closed.text)
        in_flight = self._channels.remove(channel)
        if closed.code == reply_codes.NOT_FOUND:
            self._routes.forget()  # an exchange was deleted: declare it again
        others = self._fail_what_was_refused(in_flight, closed)
        if len(others) == len(in_flight):
            self._suspect(others, channel, closed)
        again = [pending for pending in others if not pending.resolved]
        for pending in again:
            pending.begin_again()
        self._outbox.put_back(*again)
        self._reopen(channel)

    def _suspect(
        self, in_flight: Sequence[Pending], channel: ConfirmChannel, closed: Closed
    ) -> None:
        """Find the message that made the broker close the channel, if the reply does not name it.

        The messages that were in flight are published again in small groups. If that closes a
        channel too, they are published one by one, so that only the culprit fails.
        """
        if reply_codes.is_passing(closed.text):
            return
        exchange = reply_codes.missing_exchange(closed.text)
        for pending in in_flight:
            if exchange not in (None, pending.exchange):
                continue
            if channel.lane == SUSPECT:
                self._resolver.fail(pending, _culprit_error(closed))
            pending.closures += 1

    def _fail_what_was_refused(self, in_flight: Sequence[Pending], closed: Closed) -> list[Pending]:
        """Fail the messages that the broker will never accept; return the others."""
        code, text = closed.code, closed.text
        limit, exchange = reply_codes.largest_body_bytes(text), reply_codes.refused_exchange(text)
        if limit is not None:
            error = InvalidJob(f"the broker does not accept a body above {limit:,} bytes")
            for pending in (*in_flight, *self._outbox):
                if len(pending.message.body) > limit:
                    self._resolver.fail(pending, error)
        elif code == reply_codes.ACCESS_REFUSED:
            for pending in in_flight:
                if exchange in (None, pending.exchange):
                    self._resolver.fail(pending, reply_codes.channel_error(code, text))
        return [pending for pending in in_flight if not pending.resolved]

    def _reopen(self, channel: ConfirmChannel) -> None:
        """Replace a closed main channel. The channel of a lane is opened when it is needed."""
        now = self._connector.monotonic()
        wait = REOPEN_SECONDS if now - self._closed_at < REOPEN_SECONDS else 0.0
        self._closed_at = now
        if lane := self._lanes.get(channel.lane):
            lane.backs_off_until = now + wait
        if channel.lane == MAIN and self._channels.current(MAIN) is None:
            self._connector.call_later(wait, self._channels.open_main)
        self._connector.call_later(wait, self._flush)


def _culprit_error(closed: Closed) -> JobRefused:
    return JobRefused(
        f"the broker closes the channel when it reads this message ({closed.code} {closed.text}): "
        "its properties or headers are not acceptable to this broker"
    )
