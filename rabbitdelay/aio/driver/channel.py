"""A channel on a connection of aio-pika that needs no task, neither per channel nor per message.

aiormq passes every frame of a channel to the channel's `frames`, in order. This channel takes its
place there and handles each frame in that call.

Replies are matched by their kind. RabbitMQ answers the methods of a channel in order, except
Basic.Consume and Basic.Cancel on a quorum queue, which it may answer after later methods.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pamqp.frame
from aiormq.abc import AbstractConnection
from pamqp import commands as spec
from pamqp.base import Frame

from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.topology.objects import Binding, Exchange, Queue
from rabbitdelay.engine.transport import Channel, Closed, Confirm, Then, nothing

Answered = Callable[[Any], None]


class Question(NamedTuple):
    """A method that was sent and whose reply has not arrived."""

    replies: Sequence[str]
    """Names of the frames that are valid replies."""
    answered: Answered


class Carrier(Protocol):
    """The part of a connection that its channels use.

    The connection implements it, and cannot be imported here, because it imports this file.
    """

    aiormq_connection: AbstractConnection

    def send_frames(self, data: bytes) -> None:
        """Send complete frames."""

    def channel_gone(self, number: int) -> None:
        """Free the number of a channel that both sides have closed."""


class LoopChannel:
    """A channel that takes its frames from aiormq."""

    def __init__(self, carrier: Carrier, number: int) -> None:
        self.number = number
        self.is_open = False
        self.frames = self
        """The object whose `put` aiormq calls with each frame."""
        self.returned: Callable[[Returned], None] = nothing
        """Called by the connection, which reads returned messages before aiormq sees them."""
        self._carrier = carrier
        self._questions: list[Question] = []
        self._closed: list[Callable[[Channel, Closed], None]] = []
        self._cancelled: Callable[[str], None] = nothing
        self._confirmed: Callable[[Confirm], None] = nothing

    def open(self, opened: Callable[[Channel], None]) -> None:
        """Open the channel."""

        def answered(_frame: object) -> None:
            self.is_open = True
            opened(self)

        self._put_question(spec.Channel.Open(), answered)

    # Called by the engine

    def on_closed(self, closed: Callable[[Channel, Closed], None]) -> None:
        """Register a callback for the broker closing the channel."""
        self._closed.append(closed)

    def on_cancelled(self, cancelled: Callable[[str], None]) -> None:
        """Register a callback for the broker cancelling a consumer."""
        self._cancelled = cancelled

    def qos(self, prefetch: int) -> None:
        """Set the prefetch of each consumer that is started afterwards."""
        self._ask(spec.Basic.Qos(prefetch_count=prefetch), nothing)

    def consume(self, queue: str, arguments: Mapping[str, Any], consuming: Then) -> str:
        """Start a consumer; return its tag at once."""
        tag = f"rabbitdelay-{secrets.token_hex(8)}"
        method = spec.Basic.Consume(queue=queue, consumer_tag=tag, arguments=dict(arguments))
        self._ask(method, lambda _: consuming())
        return tag

    def cancel(self, tag: str, cancelled: Then = nothing) -> None:
        """Cancel a consumer."""
        self._ask(spec.Basic.Cancel(consumer_tag=tag), lambda _: cancelled())

    def count(self, queue: str, counted: Callable[[int, int], None]) -> None:
        """Call back with the number of ready messages and of consumers of a queue."""

        def answered(frame: spec.Queue.DeclareOk) -> None:
            counted(frame.message_count or 0, frame.consumer_count or 0)

        self._ask(spec.Queue.Declare(queue=queue, passive=True), answered)

    def look(self, exchange: str, seen: Then) -> None:
        """Call back if the exchange exists."""
        self._ask(spec.Exchange.Declare(exchange=exchange, passive=True), lambda _: seen())

    def declare(
        self, declaration: Exchange | Queue | Binding, declared: Then | None = None
    ) -> None:
        """Declare an exchange, a queue or a binding."""
        if declared is not None:
            self._ask(_method(declaration), lambda _: declared())
        elif self.is_open:
            self._send(_method(declaration, nowait=True))

    def delete(self, queue: str) -> None:
        """Delete a queue, without a reply from the broker."""
        if self.is_open:
            self._send(spec.Queue.Delete(queue=queue, nowait=True))

    def remove(self, declaration: Exchange | Queue, removed: Then) -> None:
        """Delete a queue or an exchange."""
        name = declaration.name
        is_queue = isinstance(declaration, Queue)
        delete = spec.Queue.Delete(queue=name) if is_queue else spec.Exchange.Delete(exchange=name)
        self._ask(delete, lambda _: removed())

    def purge(self, queue: str, purged: Callable[[int], None]) -> None:
        """Purge a queue; call back with the number of messages that were in it."""

        def answered(frame: spec.Queue.PurgeOk) -> None:
            purged(frame.message_count or 0)

        self._ask(spec.Queue.Purge(queue=queue), answered)

    def confirm(
        self,
        confirmed: Callable[[Confirm], None],
        returned: Callable[[Returned], None],
        then: Then,
    ) -> None:
        """Enable publisher confirms on the channel."""
        self._confirmed, self.returned = confirmed, returned
        self._ask(spec.Confirm.Select(), lambda _: then())

    def close(self) -> None:
        """Close the channel."""
        if self.is_open:
            self.is_open = False
            close = spec.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0)
            self._send(close)

    # Called by aiormq

    async def put(self, item: tuple[int, object]) -> None:
        """Handle a frame. aiormq awaits this, so it must not block."""
        frame = item[1]
        match frame:
            case spec.Basic.Ack() | spec.Basic.Nack():
                is_taken = isinstance(frame, spec.Basic.Ack)
                self._confirmed(Confirm(frame.delivery_tag or 0, bool(frame.multiple), is_taken))
            case spec.Basic.Cancel():
                self._cancelled_by_broker(frame)
            case spec.Channel.Close():
                self._closed_by_broker(frame)
            case spec.Channel.CloseOk():
                self._questions.clear()
                self._carrier.channel_gone(self.number)
            case Frame():
                self._reply(frame)

    def _reply(self, frame: Frame) -> None:
        for index, question in enumerate(self._questions):
            if frame.name in question.replies:
                del self._questions[index]
                question.answered(frame)
                return

    def _cancelled_by_broker(self, frame: spec.Basic.Cancel) -> None:
        tag = frame.consumer_tag or ""
        # A RabbitMQ that announces this capability keeps the consumer tag until CancelOk.
        if getattr(self._carrier.aiormq_connection, "accept_consumer_cancel_ok", False):
            self._send(spec.Basic.CancelOk(consumer_tag=tag))
        self._cancelled(tag)

    def _closed_by_broker(self, frame: spec.Channel.Close) -> None:
        was_open, self.is_open = self.is_open, False
        self._questions.clear()
        self._send(spec.Channel.CloseOk())
        self._carrier.channel_gone(self.number)
        for closed in self._closed if was_open else ():
            closed(self, Closed(frame.reply_code or 0, frame.reply_text or ""))

    def _ask(self, method: Frame, answered: Answered) -> None:
        """Send a method that expects a reply, unless the channel is closing."""
        if self.is_open:
            self._put_question(method, answered)

    def _put_question(self, method: Frame, answered: Answered) -> None:
        self._questions.append(Question(method.valid_responses, answered))
        self._send(method)

    def _send(self, method: Frame) -> None:
        self._carrier.send_frames(pamqp.frame.marshal(method, self.number))


def _method(declaration: Exchange | Queue | Binding, *, nowait: bool = False) -> Frame:
    match declaration:
        case Exchange(name, type_, arguments):
            return spec.Exchange.Declare(
                exchange=name,
                exchange_type=type_,
                durable=True,
                nowait=nowait,
                arguments=dict(arguments),
            )
        case Queue(name, arguments, is_exclusive):
            return spec.Queue.Declare(
                queue=name,
                durable=not is_exclusive,
                exclusive=is_exclusive,
                auto_delete=is_exclusive,
                nowait=nowait,
                arguments=dict(arguments),
            )
        case Binding(source, destination, "queue", key):
            return spec.Queue.Bind(
                queue=destination, exchange=source, routing_key=key, nowait=nowait
            )
        case Binding(source, destination, _, key):
            return spec.Exchange.Bind(
                destination=destination, source=source, routing_key=key, nowait=nowait
            )
