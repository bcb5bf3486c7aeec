"""The channels that serve pops, and the pops that wait for one."""

from collections import deque
from collections.abc import Sequence
from functools import partial

from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.deletes.delete_check import DeleteCheck
from rabbitdelay.engine.pop.pop_calls import PopCalls
from rabbitdelay.engine.pop.pop_channel import PopChannel, PopChannelOwner
from rabbitdelay.engine.pop.pop_request import PopRequest

MAX_CHANNELS = 1_000
"""Maximum number of pops served at once; a connection has 2,047 channels, and others are needed."""


class ChannelPool:
    """Opens channels when none is idle, on the transport's thread."""

    def __init__(
        self, consumer: Consumer, check: DeleteCheck, calls: PopCalls, owner: PopChannelOwner
    ) -> None:
        self._consumer = consumer
        self._check = check
        self._calls = calls
        self._owner = owner
        self._idle: deque[PopChannel] = deque()
        self._channels: set[PopChannel] = set()
        """All channels, including those that are being opened."""
        self._waiting: deque[PopRequest] = deque()

    def serve(self, request: PopRequest, topics: Sequence[str]) -> None:
        """Serve a pop with an idle channel, with a new one, or when one is free."""
        if self._idle:
            self._idle.pop().begin(request, topics)
        elif len(self._channels) >= MAX_CHANNELS:
            self._waiting.append(request)
        else:
            channel = PopChannel(self._consumer, self._check, self._calls, self._owner)
            self._channels.add(channel)
            channel.open(partial(channel.begin, request, topics))

    def take_back(self, channel: PopChannel) -> None:
        """Note that a channel is idle."""
        self._idle.append(channel)

    def next_waiting(self) -> PopRequest | None:
        """Return a pop that waits for a channel if there is one for it, and forget it."""
        if self._waiting and (self._idle or len(self._channels) < MAX_CHANNELS):
            return self._waiting.popleft()
        return None

    def channel_lost(self, number: int) -> None:
        """Forget a channel that the broker closed."""
        self._idle = deque(channel for channel in self._idle if channel.number != number)
        self._channels = {channel for channel in self._channels if channel.number != number}

    def connection_lost(self) -> None:
        """Forget all channels, and the pops, which are served again on the next connection."""
        self._idle.clear()
        self._waiting.clear()
        self._channels.clear()
