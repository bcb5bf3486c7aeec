"""Driving a setup conversation over pika: one channel, replaced when the broker closes it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pika import exceptions as pika_errors
from pika.channel import Channel
from pika.connection import Connection
from pika.exchange_type import ExchangeType

from rabbitdelay.core import replies
from rabbitdelay.core.setup import Announce, Command, Conversation, Declare, Inspect
from rabbitdelay.core.topology import Binding, Exchange, Queue
from rabbitdelay.sync import driver_errors

Done = Callable[[bool | Exception], None]


class SetupDriver:
    """Asks the broker what the conversation yields, on the I/O thread, and calls `done` once."""

    def __init__(self, connection: Connection, conversation: Conversation, done: Done) -> None:
        self._connection = connection
        self._conversation = conversation
        self._done = done
        self._channel: Channel | None = None
        self._command: Command | None = None

    def start(self) -> None:
        """Begin; `done` gets what the conversation returns, or the error that ended it."""
        self._open(lambda: self._reply(None))

    def _open(self, then: Callable[[], None]) -> None:
        def opened(channel: Channel) -> None:
            self._channel = channel
            channel.add_on_close_callback(self._closed)
            then()

        self._connection.channel(on_open_callback=opened)

    def _reply(self, answer: int | None) -> None:
        self._advance(partial(self._conversation.send, answer))

    def _advance(self, step: Callable[[], Command]) -> None:
        try:
            self._command = step()
        except StopIteration as stop:
            self._finish(stop.value)
        except Exception as error:  # noqa: BLE001 - handed on
            self._finish(error)
        else:
            self._ask(self._command)

    def _ask(self, command: Command) -> None:
        if not self._open_channel.is_open:
            return  # the connection is being closed: whoever started this is told by it
        match command:
            case Inspect(Queue(name)):
                self._open_channel.queue_declare(name, passive=True, callback=self._counted)
            case Inspect(Exchange(name)):
                self._open_channel.exchange_declare(name, passive=True, callback=self._answered)
            case Declare(declaration):
                self._declare(declaration)
            case Announce(exchange):
                self._announce(exchange)

    def _declare(self, declaration: Queue | Exchange | Binding) -> None:
        channel, answered = self._open_channel, self._answered
        match declaration:
            case Exchange(name, type_, arguments):
                channel.exchange_declare(
                    name,
                    ExchangeType(type_),
                    durable=True,
                    arguments=dict(arguments),
                    callback=answered,
                )
            case Queue(name, arguments):
                channel.queue_declare(
                    name, durable=True, arguments=dict(arguments), callback=answered
                )
            case Binding(source, destination, "queue", key):
                channel.queue_bind(destination, source, key, callback=answered)
            case Binding(source, destination, _, key):
                channel.exchange_bind(destination, source, key, callback=answered)

    def _announce(self, exchange: str) -> None:
        """Publish on a channel of its own, which is closed again: confirm mode cannot be left."""

        def opened(channel: Channel) -> None:
            def confirmed(_frame: object) -> None:
                channel.close()
                self._reply(None)

            channel.add_on_close_callback(self._closed)
            channel.confirm_delivery(confirmed, callback=lambda _: publish(channel))

        def publish(channel: Channel) -> None:
            channel.basic_publish(exchange, "", b"")

        self._connection.channel(on_open_callback=opened)

    def _counted(self, frame: Any) -> None:  # noqa: ANN401 - pika's method frame
        self._reply(frame.method.message_count)

    def _answered(self, _frame: object) -> None:
        self._reply(None if isinstance(self._command, Declare) else 0)

    def _closed(self, _channel: Channel, error: Exception) -> None:
        if isinstance(error, pika_errors.ChannelClosedByClient):
            return
        if not isinstance(error, pika_errors.ChannelClosedByBroker):
            return  # the whole connection went: whoever started this is told by it
        if isinstance(self._command, Inspect) and error.reply_code == replies.NOT_FOUND:
            self._open(lambda: self._reply(None))
            return
        ours = driver_errors.channel_error(error)
        self._open(lambda: self._advance(partial(self._conversation.throw, ours)))

    def _finish(self, result: bool | Exception) -> None:  # noqa: FBT001 - what was returned
        if self._channel is not None and self._channel.is_open:
            self._channel.close()
        self._done(result)

    @property
    def _open_channel(self) -> Channel:
        assert self._channel is not None
        return self._channel
