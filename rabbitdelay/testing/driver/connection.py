"""A connection of a client to the broker in memory."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Deliveries, Other, Returned
from rabbitdelay.engine.transport import Channel, Confirm, OnInbound, Then, nothing
from rabbitdelay.testing.driver.channel import MemoryChannel
from rabbitdelay.testing.driver.endpoint import Endpoint
from rabbitdelay.testing.driver.pipe import Pipe
from rabbitdelay.testing.model import channel as model
from rabbitdelay.testing.model.content import Content
from rabbitdelay.testing.model.events import (
    Blocked,
    ChannelClosed,
    Confirmed,
    ConnectionClosed,
    ConsumerCancelled,
    Delivered,
    Empty,
    Event,
    ReturnedMessage,
)
from rabbitdelay.testing.model.message import Message
from rabbitdelay.testing.model.session import Session
from rabbitdelay.testing.time.places import Place
from rabbitdelay.testing.wire import inbound, outbound
from rabbitdelay.testing.wire.inbound import Frames, Get, Publish, Settle

Result = TypeVar("Result")
Lost = Callable[[str], None]
BROKER_VERSION = "4.3.0"
"""The RabbitMQ whose behaviour the model has."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The broker's answer to a request."""

    act: Then


class MemoryConnection:
    """An open connection. Published frames are decoded for the broker, deliveries encoded by it."""

    frame_max = outbound.FRAME_MAX
    broker_version = BROKER_VERSION

    def __init__(self, name: str, endpoint: Endpoint, place: Place, lost: Lost) -> None:
        self.name = name
        self.is_open = False
        self.is_lost = False
        self.to_broker = Pipe(endpoint.timeline, endpoint.place)
        self.to_client = Pipe(endpoint.timeline, place)
        self.session: Session | None = None
        """The connection as the broker sees it; None until the broker has opened it."""
        self._endpoint = endpoint
        self._place = place
        self._lost = lost
        self._channels: dict[int, MemoryChannel] = {}
        self._frames = Frames()
        self._deliveries = Deliveries()
        self._inbox: deque[Event | _Answer] = deque()
        """Events and answers that the client has not read. The broker appends them."""
        self._on_inbound: OnInbound = nothing
        self._on_read: Then = nothing
        self._blocked: Callable[[str | None], None] = nothing

    def open(self, opened: Then, timeout_seconds: float) -> None:
        """Open the connection."""

        def answered() -> None:
            if not self.is_lost:
                self.is_open = True
                opened()

        def give_up() -> None:
            if not self.is_open:
                self.lose("cannot connect in time")

        self.to_broker.send(lambda: self._open_on_broker(answered))
        self._endpoint.timeline.call_later(self._place, timeout_seconds, give_up)

    # Called by the engine

    def send_frames(self, data: bytes) -> None:
        """Send complete frames, which may belong to any channel of the connection."""
        if self.is_open:
            self.to_broker.send(partial(self._receive_frames, data))

    def read_deliveries(self, on_inbound: OnInbound, on_read: Then) -> None:
        """Pass on each message; call `on_read` after all messages that arrived together."""
        self._on_inbound, self._on_read = on_inbound, on_read

    def on_blocked(self, blocked: Callable[[str | None], None]) -> None:
        """Register a callback, given the reason when the broker blocks publishers, then None."""
        self._blocked = blocked

    def open_channel(self, opened: Callable[[Channel], None]) -> None:
        """Open a channel with the lowest free number."""
        if not self.is_open:
            return
        number = 1
        while number in self._channels:
            number += 1
        channel = self._channels[number] = MemoryChannel(self, number)
        channel.open(opened)

    def close(self) -> None:
        """Close the connection with a closing handshake."""
        for channel in self._channels.values():
            channel.is_open = False
        self._send(self._close_on_broker)

    def cut(self) -> None:
        """Drop the connection: nothing that was sent arrives any more. Safe from any thread."""
        self.to_broker.cut()
        self.to_client.cut()
        timeline = self._endpoint.timeline
        timeline.post(self._endpoint.place, self._end_on_broker)
        timeline.post(self._place, lambda: self.lose("the connection was lost"))

    def lose(self, reason: str) -> None:
        """Note that the connection is gone."""
        if not self.is_lost:
            self.is_open, self.is_lost = False, True
            for channel in self._channels.values():
                channel.is_open = False
            self._lost(reason)

    # Called by the channels

    def ask(
        self,
        number: int,
        method: Callable[[model.Channel], Result],
        answered: Callable[[Result], None],
    ) -> None:
        """Have the broker do something on a channel, and call back with its answer."""

        def act(channel: model.Channel) -> None:
            result = method(channel)
            self._emit(_Answer(lambda: answered(result)))

        self._send(lambda session: session.on_channel(number, act))

    def open_channel_on_broker(self, number: int, opened: Then) -> None:
        """Open a channel on the broker."""

        def act(session: Session) -> None:
            session.open_channel(number)
            self._emit(_Answer(opened))

        self._send(act)

    def close_channel_on_broker(self, number: int) -> None:
        """Close a channel on the broker, and free its number when that is done."""

        def act(session: Session) -> None:
            session.close_channel(number)
            self._emit(_Answer(lambda: self._free(number)))

        self._send(act)

    def _free(self, number: int) -> None:
        self._channels.pop(number, None)

    # In the place of the broker

    def _open_on_broker(self, opened: Then) -> None:
        """Open the connection on the broker."""
        self.session = self._endpoint.sessions.open(self._emit)
        self._emit(_Answer(opened))

    def _send(self, act: Callable[[Session], None]) -> None:
        def arrive() -> None:
            session = self.session
            if session is not None:
                session.receive(lambda: act(session))

        self.to_broker.send(arrive)

    def _receive_frames(self, data: bytes) -> None:
        session = self.session
        if session is None:
            return
        for found in self._frames.feed(data):
            act = partial(_perform, session, found)
            session.receive(act, is_publish=isinstance(found, Publish))

    def _close_on_broker(self, session: Session) -> None:
        session.end()
        self._emit(_Answer(lambda: self.lose("the connection was closed")))

    def _end_on_broker(self) -> None:
        if self.session is not None:
            self.session.end()

    def _emit(self, event: Event | _Answer) -> None:
        if not self.to_client.is_plain:
            self.to_client.send(partial(self._take, deque((event,))))
            return
        self._inbox.append(event)
        if len(self._inbox) == 1:
            self.to_client.send(partial(self._take, self._inbox))

    # In the place of the client

    def _take(self, arrived: deque[Event | _Answer]) -> None:
        """Handle everything that has arrived together."""
        has_messages = False
        while arrived and not self.to_client.is_cut:
            event = arrived.popleft()
            has_messages = isinstance(event, Delivered | Empty) or has_messages
            self._handle(event)
        if has_messages:
            self._on_read()

    def _handle(self, event: Event | _Answer) -> None:
        match event:
            case _Answer(act):
                act()
            case Delivered():
                self._deliver(outbound.delivered(event))
            case Empty():
                self._deliver(outbound.empty(event))
            case ReturnedMessage():
                self._deliver(outbound.returned(event))
            case Blocked(reason):
                self._blocked(reason)
            case ConnectionClosed(code, text):
                self.lose(f"{code} {text}")
            case _:
                self._handle_on_channel(event)

    def _handle_on_channel(self, event: Confirmed | ConsumerCancelled | ChannelClosed) -> None:
        channel = self._channels.get(event.channel)
        if channel is None:
            return
        match event:
            case Confirmed(_, tag, is_taken):
                channel.confirmed(Confirm(tag, multiple=False, is_taken=is_taken))
            case ConsumerCancelled(_, tag):
                channel.cancelled(tag)
            case ChannelClosed(number, code, text):
                self._free(number)
                channel.closed_by_broker(code, text)

    def _deliver(self, frames: bytes) -> None:
        for found in self._deliveries.feed(frames):
            assert not isinstance(found, Other)
            if isinstance(found, Returned):
                if (channel := self._channels.get(found.channel)) is not None:
                    channel.returned(found)
            else:
                self._on_inbound(found)


def _perform(session: Session, found: inbound.Inbound) -> None:
    match found:
        case Publish():
            content = Content.of(found.header, found.body)
            message = Message(found.exchange, found.routing_key, content)
            mandatory = found.is_mandatory
            session.on_channel(
                found.channel, lambda channel: channel.publish(message, is_mandatory=mandatory)
            )
        case Settle():
            session.on_channel(found.channel, partial(_settle, found))
        case Get(number, queue, acknowledges):
            session.on_channel(
                number, lambda channel: channel.get(queue, acknowledges=acknowledges)
            )


def _settle(settle: Settle, channel: model.Channel) -> None:
    if settle.method == encode.ACK:
        channel.acknowledge(settle.tag, multiple=settle.multiple)
    else:
        channel.reject(
            settle.tag,
            multiple=settle.multiple,
            requeue=settle.requeue,
            has_failed=settle.method == inbound.REJECT,
        )
