"""A TCP server that speaks AMQP for the broker in memory, so that pika can look into it."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pamqp.frame
from pamqp import commands as spec
from pamqp.base import Frame
from pamqp.common import FieldTable

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.topology.objects import Binding
from rabbitdelay.testing.driver.endpoint import Endpoint
from rabbitdelay.testing.model.channel import Channel
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
from rabbitdelay.testing.model.vhost import Vhost
from rabbitdelay.testing.wire import inbound, outbound
from rabbitdelay.testing.wire.inbound import Frames, Get, Other, Publish, Settle

PROTOCOL_HEADER_BYTES = 8
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
SILENT_INTERVALS = 4
"""Half heartbeat intervals without a byte after which a client counts as gone."""
PROPERTIES: FieldTable = {
    "product": "rabbitdelay",
    "version": "4.3.0",
    "capabilities": {
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "exchange_exchange_bindings": True,
        "connection.blocked": True,
    },
}


class AmqpServer:
    """Listens on a free port of the loopback interface."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._served: list[_Served] = []
        self._thread = threading.Thread(target=self._accept, name="amqp server", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening, and close all connections."""
        with suppress(OSError):  # raised if it is not connected, after it has woken `accept`
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for served in self._served:
            served.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._served.append(_Served(self._endpoint, sock))


class _Served:
    """One connection."""

    def __init__(self, endpoint: Endpoint, sock: socket.socket) -> None:
        self._endpoint = endpoint
        self._sock = sock
        self._session: Session | None = None
        self._frames = Frames()
        self._thread = threading.Thread(target=self._read, name="amqp connection", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the socket."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    # On its own thread

    def _read(self) -> None:
        with self._sock, suppress(OSError):
            header = self._sock.recv(PROTOCOL_HEADER_BYTES, socket.MSG_WAITALL)
            if header == b"AMQP\x00\x00\x09\x01":
                self._send(0, spec.Connection.Start(server_properties=PROPERTIES, locales="en_US"))
                while data := self._receive():
                    self._post(partial(self._feed, data))
        self._post(self._end)

    def _receive(self) -> bytes:
        """Return the next bytes; none at the end, or when the client has been silent too long."""
        for _ in range(SILENT_INTERVALS):
            try:
                return self._sock.recv(65_536)
            except TimeoutError:
                self._write(HEARTBEAT)
        return b""

    def _post(self, act: Callable[[], object]) -> None:
        self._endpoint.timeline.post(self._endpoint.place, act)

    # In the place of the broker

    def _feed(self, data: bytes) -> None:
        for found in self._frames.feed(data):
            if isinstance(found, Other):
                self._other(found.frame)
            elif self._session is not None:
                act = partial(self._perform, found)
                self._session.receive(act, is_publish=isinstance(found, Publish))

    def _end(self) -> None:
        if self._session is not None:
            self._session.end()

    def _other(self, data: bytes) -> None:
        _, number, frame = pamqp.frame.unmarshal(data)
        if not isinstance(frame, Frame):
            return  # a heartbeat
        if self._session is None:
            self._handshake(frame)
        else:
            self._session.receive(lambda: self._method(number, frame))

    def _handshake(self, frame: Frame) -> None:
        match frame:
            case spec.Connection.StartOk():
                tune = spec.Connection.Tune(2047, outbound.FRAME_MAX, 60)
                self._send(0, tune)
            case spec.Connection.TuneOk(heartbeat=seconds) if seconds:
                self._sock.settimeout(seconds / 2)
            case spec.Connection.Open():
                self._session = self._endpoint.sessions.open(self._emit)
                self._send(0, spec.Connection.OpenOk())

    def _method(self, number: int, frame: Frame) -> None:
        session = self._session
        assert session is not None
        match frame:
            case spec.Connection.Close():
                session.end()
                self._send(0, spec.Connection.CloseOk())
            case spec.Channel.Open():
                session.open_channel(number)
                self._send(number, spec.Channel.OpenOk())
            case spec.Channel.Close():
                session.close_channel(number)
                self._send(number, spec.Channel.CloseOk())
            case spec.Channel.CloseOk() | spec.Connection.CloseOk() | spec.Basic.CancelOk():
                pass
            case _:
                session.on_channel(number, lambda channel: self._on_channel(channel, frame))

    def _on_channel(self, channel: Channel, frame: Frame) -> None:
        assert self._session is not None
        answer = _answer(self._session, channel, frame)
        if not getattr(frame, "nowait", False):
            self._send(channel.number, answer)
        if isinstance(frame, spec.Basic.Consume):
            channel.serve(frame.consumer_tag)

    def _perform(self, found: Publish | Settle | Get) -> None:
        session = self._session
        assert session is not None
        match found:
            case Publish():
                content = Content.of(found.header, found.body)
                message = Message(found.exchange, found.routing_key, content)
                session.on_channel(
                    found.channel,
                    lambda channel: channel.publish(message, is_mandatory=found.is_mandatory),
                )
            case Settle():
                session.on_channel(found.channel, lambda channel: _settle(channel, found))
            case Get(number, queue, acknowledges):
                session.on_channel(
                    number, lambda channel: channel.get(queue, acknowledges=acknowledges)
                )

    def _emit(self, event: Event) -> None:
        match event:
            case Delivered():
                self._write(outbound.delivered(event))
            case Empty():
                self._write(outbound.empty(event))
            case ReturnedMessage():
                self._write(outbound.returned(event))
            case Confirmed(channel, tag, is_taken):
                kind = spec.Basic.Ack if is_taken else spec.Basic.Nack
                self._send(channel, kind(tag))
            case ConsumerCancelled(channel, tag):
                self._send(channel, spec.Basic.Cancel(tag, nowait=True))
            case ChannelClosed(channel, code, text):
                self._send(channel, spec.Channel.Close(code, text, 0, 0))
            case ConnectionClosed(code, text):
                self._send(0, spec.Connection.Close(code, text, 0, 0))
            case Blocked(reason):
                frame = (
                    spec.Connection.Unblocked()
                    if reason is None
                    else spec.Connection.Blocked(reason)
                )
                self._send(0, frame)

    def _send(self, number: int, frame: Frame) -> None:
        self._write(pamqp.frame.marshal(frame, number))

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # the client is gone, and the reading thread notices that, too
            self._sock.sendall(data)


def _settle(channel: Channel, settle: Settle) -> None:
    if settle.method == encode.ACK:
        channel.acknowledge(settle.tag, multiple=settle.multiple)
    else:
        channel.reject(
            settle.tag,
            multiple=settle.multiple,
            requeue=settle.requeue,
            has_failed=settle.method == inbound.REJECT,
        )


def _answer(session: Session, channel: Channel, frame: Frame) -> Frame:
    """Do what a method says; return the answer."""
    match frame:
        case spec.Exchange.Declare() | spec.Exchange.Delete():
            return _exchange(channel, frame)
        case spec.Queue.Declare():
            return _declare_queue(session, channel, frame)
        case spec.Queue.Delete():
            return spec.Queue.DeleteOk(channel.vhost.delete_queue(frame.queue))
        case spec.Queue.Purge():
            return spec.Queue.PurgeOk(channel.vhost.queue(frame.queue).purge())
    if frame.name.endswith(("Bind", "Unbind")):
        return _bind(channel.vhost, frame)
    return _basic(channel, frame)


def _exchange(channel: Channel, frame: spec.Exchange.Declare | spec.Exchange.Delete) -> Frame:
    vhost = channel.vhost
    if isinstance(frame, spec.Exchange.Delete):
        vhost.delete_exchange(frame.exchange)
        return spec.Exchange.DeleteOk()
    if frame.passive:
        vhost.exchange(frame.exchange)
    else:
        vhost.declare_exchange(frame.exchange, frame.exchange_type, frame.arguments or {})
    return spec.Exchange.DeclareOk()


def _bind(vhost: Vhost, frame: Frame) -> Frame:
    match frame:
        case spec.Queue.Bind(queue=queue, exchange=exchange, routing_key=key):
            vhost.bind(Binding(exchange, queue, "queue", key))
            return spec.Queue.BindOk()
        case spec.Queue.Unbind(queue=queue, exchange=exchange, routing_key=key):
            vhost.unbind(Binding(exchange, queue, "queue", key))
            return spec.Queue.UnbindOk()
        case spec.Exchange.Bind(source=source, destination=destination, routing_key=key):
            vhost.bind(Binding(source, destination, "exchange", key))
            return spec.Exchange.BindOk()
        case spec.Exchange.Unbind(source=source, destination=destination, routing_key=key):
            vhost.unbind(Binding(source, destination, "exchange", key))
            return spec.Exchange.UnbindOk()
    raise NotImplementedError(frame.name)


def _declare_queue(session: Session, channel: Channel, frame: spec.Queue.Declare) -> Frame:
    vhost, arguments = channel.vhost, frame.arguments or {}
    if frame.passive:
        queue = vhost.queue(frame.queue)
    elif frame.exclusive:
        queue = vhost.queue(session.declare_exclusive(frame.queue, arguments))
    else:
        queue = vhost.declare_queue(frame.queue, arguments)
    return spec.Queue.DeclareOk(queue.name, queue.count, len(queue.consumers))


def _basic(channel: Channel, frame: Frame) -> Frame:
    match frame:
        case spec.Confirm.Select():
            channel.enable_confirms()
            return spec.Confirm.SelectOk()
        case spec.Basic.Qos():
            channel.set_prefetch(frame.prefetch_count)
            return spec.Basic.QosOk()
        case spec.Basic.Consume(queue=queue, consumer_tag=tag):
            channel.consume(queue, tag, frame.arguments or {}, acknowledges=not frame.no_ack)
            return spec.Basic.ConsumeOk(tag)
        case spec.Basic.Cancel(consumer_tag=tag):
            channel.cancel(tag or "")
            return spec.Basic.CancelOk(tag)
        case spec.Basic.Recover():
            channel.requeue_all()
            return spec.Basic.RecoverOk()
    raise NotImplementedError(frame.name)
