"""Buffer the acks and nacks of one connection until they are sent together.

A busy worker has several by the time they are sent.
"""

import threading
from collections.abc import Set as AbstractSet

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.consume.leases import Do
from rabbitdelay.core.settle.acknowledgements import Acks
from rabbitdelay.engine.transport import Then

BROKER_COMMANDS = 32
"""Maximum number of settlements of a quorum queue that a channel of the broker has in flight. The
broker buffers further ones, and drops that buffer when the channel ends
(`quorum_commands_soft_limit`)."""


class _OfChannel:
    """The acks of one channel."""

    def __init__(self, prefetch: int | None) -> None:
        self.acks = Acks()
        self.topics: set[str] = set()
        self.settled = 0
        self._prefetch = prefetch

    @property
    def is_proven(self) -> bool:
        """Whether the broker cannot have buffered any settlement of this channel.

        It has at most as many in flight as messages that were delivered and not yet settled: those
        of the prefetch, and as many of an earlier consumer if the topic was paused and resumed.
        """
        prefetch = self._prefetch
        is_narrow = prefetch is not None and 2 * prefetch <= BROKER_COMMANDS
        return is_narrow or self.settled <= BROKER_COMMANDS


class AckBuffer:
    """The acks and nacks of each channel. Thread-safe."""

    def __init__(self, wake: Then) -> None:
        self._wake = wake
        """Has `take` called soon."""
        self._lock = threading.RLock()
        self._channels: dict[int, _OfChannel] = {}
        self._nacks: list[tuple[int, bytes]] = []
        self._unsent: dict[int, Acks] = {}
        """The channels that may have acks to send; most have none."""

    def opened(self, channel: int, prefetch: int | None) -> None:
        """Note a new channel; its prefetch is None if the number of deliveries is not limited."""
        with self._lock:
            self._channels[channel] = _OfChannel(prefetch)

    def delivered(self, channel: int, tag: int, topic: str) -> None:
        """Note a delivery."""
        with self._lock:
            of_channel = self._channels[channel]
            of_channel.acks.delivered(tag)
            of_channel.topics.add(topic)

    def settle(self, channel: int, tag: int, do: Do) -> None:
        """Buffer the ack or nack of a delivery."""
        with self._lock:
            of_channel = self._channels.get(channel)
            if of_channel is None or do is Do.NOTHING:
                return
            of_channel.settled += 1
            self._unsent[channel] = of_channel.acks
            if do is Do.ACK:
                of_channel.acks.finished(tag)
            else:
                of_channel.acks.settled(tag)
                self._nacks.append((channel, encode.nack(channel, tag, requeue=do is Do.NACK)))
        self._wake()

    def lose(self, channel: int | None) -> None:
        """Forget a closed channel, or all channels if None."""
        with self._lock:
            if channel is None:
                self._channels.clear()
                self._unsent.clear()
                self._nacks.clear()
            else:
                self._channels.pop(channel, None)
                self._unsent.pop(channel, None)
                self._nacks = [nack for nack in self._nacks if nack[0] != channel]

    def take(self, now: float, *, everything: bool = False) -> bytes:
        """Return the frames to send now.

        With `everything`, also those of acks that wait for older ones.
        """
        with self._lock:
            # Nacks go first, because an ack with `multiple` must not include a nacked delivery.
            pieces = [frame for _, frame in self._nacks]
            self._nacks.clear()
            for number, acks in tuple(self._unsent.items()):
                for tag, multiple in acks.take(now, everything=everything):
                    pieces.append(encode.ack(number, tag, multiple=multiple))
                if not acks.is_any_waiting:
                    del self._unsent[number]
        return b"".join(pieces)

    @property
    def is_any_waiting(self) -> bool:
        """Whether acks wait for those of older deliveries."""
        with self._lock:
            return any(acks.is_any_waiting for acks in self._unsent.values())

    def unproven(self) -> list[tuple[int, AbstractSet[str]]]:
        """Return the channels whose settlements the broker may have buffered, with their topics."""
        with self._lock:
            channels = self._channels.items()
            return [(number, one.topics) for number, one in channels if not one.is_proven]
