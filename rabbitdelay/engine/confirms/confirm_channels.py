"""The confirm channels of one connection: the main one, and one for each lane in use."""

from rabbitdelay.core.publish.lanes import MAIN
from rabbitdelay.core.publish.outbox import Outbox
from rabbitdelay.core.publish.pending import Pending
from rabbitdelay.engine.confirms.confirm_channel import ConfirmChannel, ConfirmListener
from rabbitdelay.engine.connection import Connector


class ConfirmChannels:
    """Opens and closes the channels of a publisher, on the transport's thread."""

    def __init__(self, connector: Connector, outbox: Outbox, listener: ConfirmListener) -> None:
        self._connector = connector
        self._outbox = outbox
        self._listener = listener
        self._current: dict[str, ConfirmChannel] = {}
        """The current channel of each lane, by name of the lane; MAIN included."""
        self._retired: list[ConfirmChannel] = []
        """Channels on which nothing more is published, but confirms are outstanding."""

    def all(self) -> tuple[ConfirmChannel, ...]:
        """Return all channels, the retired ones last."""
        return (*self._current.values(), *self._retired)

    def current(self, lane: str) -> ConfirmChannel | None:
        """Return the channel on which a lane publishes; None if it has to be opened."""
        return self._current.get(lane)

    def open(self, lane: str) -> None:
        """Open a channel for a lane, or the main channel. Do nothing without a connection."""
        connection = self._connector.open_connection
        if connection is not None:
            channel = ConfirmChannel(
                connection,
                lane,
                self._outbox.new_flight(),
                self._listener,
                self._connector.monotonic,
            )
            self._current[lane] = channel
            channel.open()

    def open_main(self) -> None:
        """Open the main channel, unless there is one."""
        if MAIN not in self._current:
            self.open(MAIN)

    def remove(self, channel: ConfirmChannel) -> list[Pending]:
        """Drop a channel, and return the messages in flight on it."""
        channel.drop()
        self._forget(channel)
        if channel in self._retired:
            self._retired.remove(channel)
        return self._outbox.end_flight(channel.flight)

    def retire(self, channel: ConfirmChannel) -> None:
        """Stop publishing on a channel, and close it when nothing is in flight on it."""
        if self._forget(channel):
            self._retired.append(channel)
        self.close_if_retired(channel)

    def close_if_retired(self, channel: ConfirmChannel) -> None:
        """Close a retired channel if nothing is in flight on it any more."""
        if self._retired and channel in self._retired and not channel.flight:
            self.remove(channel)

    def clear(self) -> None:
        """Forget all channels, which were lost with the connection."""
        self._current.clear()
        self._retired.clear()

    def _forget(self, channel: ConfirmChannel) -> bool:
        """Remove a channel from the current ones; return whether it was one of them."""
        is_current = self._current.get(channel.lane) is channel
        if is_current:
            del self._current[channel.lane]
        return is_current
