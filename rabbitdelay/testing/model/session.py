"""A connection, as the broker sees it."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from rabbitdelay.testing.model import failures
from rabbitdelay.testing.model.channel import Channel
from rabbitdelay.testing.model.events import Blocked, ChannelClosed, ConnectionClosed, Event
from rabbitdelay.testing.model.message import Entry
from rabbitdelay.testing.model.vhost import Vhost

Act = Callable[[], None]


class Session:
    """The channels of one connection, and what the broker does to the whole of it."""

    def __init__(self, vhost: Vhost, emit: Callable[[Event], None]) -> None:
        self.vhost = vhost
        self.is_open = True
        self._emit = emit
        self._channels: dict[int, Channel] = {}
        self._alarm: str | None = None
        self._is_blocked = False
        self._held: deque[Act] = deque()
        """Requests that a blocked connection has sent and the broker does not read."""
        self._exclusive: list[str] = []

    def receive(self, act: Act, *, is_publish: bool = False) -> None:
        """Do what the client asks for, or leave it unread while the connection is blocked.

        RabbitMQ blocks a connection with its first publish during an alarm, and reads nothing more
        from it (rabbit_reader:control_throttle).
        """
        if not self.is_open:
            return
        if is_publish and self._alarm is not None and not self._is_blocked:
            self._is_blocked = True
            self._emit(Blocked(self._alarm))
        if self._is_blocked:
            self._held.append(act)
        else:
            act()

    def on_channel(self, number: int, act: Callable[[Channel], None]) -> None:
        """Do something on a channel; an error closes it. A closed one ignores what arrives."""
        channel = self._channels.get(number)
        if channel is None or channel.is_stuck:
            return
        try:
            act(channel)
        except failures.Unanswered:
            channel.is_stuck = True
        except failures.ConnectionFailure as error:
            self._emit(ConnectionClosed(error.code, error.text))
            self.end()
        except failures.ChannelError as error:
            self.close_channel(number)
            self._emit(ChannelClosed(number, error.code, error.text))

    def open_channel(self, number: int) -> None:
        """Open a channel."""
        channel = Channel(number, self.vhost, self._emit, self.declare_exclusive)
        self._channels[number] = channel

    def close_channel(self, number: int) -> None:
        """Close a channel."""
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()

    def declare_exclusive(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Declare a queue that is deleted with this connection; return its name."""
        made = self.vhost.declare_queue(name, arguments).name
        self._exclusive.append(made)
        return made

    @property
    def channels(self) -> Collection[Channel]:
        """The open channels."""
        return self._channels.values()

    def alarm(self, reason: str | None) -> None:
        """Begin or end to block publishers."""
        self._alarm = reason
        if reason is not None or not self._is_blocked:
            return
        self._is_blocked = False
        self._emit(Blocked(None))
        held, self._held = self._held, deque()
        for act in held:
            self.receive(act)

    def end(self) -> None:
        """End the connection: close its channels and delete its exclusive queues."""
        self.is_open = False
        self._held.clear()
        for number in tuple(self._channels):
            self.close_channel(number)
        for name in self._exclusive:
            self.vhost.delete_queue(name)


class Sessions:
    """All connections of the broker."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._open: dict[Session, None] = {}
        self._alarm: str | None = None

    def open(self, emit: Callable[[Event], None]) -> Session:
        """Open a connection."""
        self._open = {one: None for one in self._open if one.is_open}
        session = Session(self._vhost, emit)
        session.alarm(self._alarm)
        self._open[session] = None
        return session

    def unacknowledged(self) -> Iterator[tuple[str, Entry]]:
        """Yield the messages that wait for their settlement, each with the name of its queue."""
        for session in self._open:
            for channel in session.channels:
                yield from channel.unacknowledged

    def alarm(self, reason: str | None) -> None:
        """Begin or end to block the publishers of all connections."""
        self._alarm = reason
        for session in tuple(self._open):
            session.alarm(reason)
