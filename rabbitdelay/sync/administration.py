"""Administration: making, looking at and counting exchanges and queues, one after the other."""

import secrets
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from pika import BlockingConnection
from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.topology.counts import QueueCount
from rabbitdelay.core.topology.objects import Binding, Exchange, Queue
from rabbitdelay.core.topology.setup import (
    SETTLE_SECONDS,
    Announce,
    Answers,
    Command,
    CountMakers,
    Declare,
    Enter,
    Flush,
    Inspect,
    Leave,
    Remove,
    Round,
    Wait,
    is_flushed_by_declaring,
)
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.sync import driver_errors

Result = TypeVar("Result")
OnCommand = Callable[[Command], None]


class Administrator:
    """Asks the broker what a conversation yields; a channel that it closes is replaced."""

    def __init__(
        self,
        connection: BlockingConnection,
        on_command: OnCommand | None = None,
        *,
        settle_seconds: float | None = None,
    ) -> None:
        self._connection = connection
        self._on_command = on_command or (lambda _: None)
        self._current: BlockingChannel | None = None
        self._entered: BlockingChannel | None = None
        """The channel that counts this client as a maker of queues."""
        self._is_flushing = settle_seconds is None and _flushes(connection)
        self.settle_seconds = SETTLE_SECONDS if settle_seconds is None else settle_seconds
        """Age in seconds at which a queue is safe that could not be flushed."""

    def run(self, conversation: Generator[Command, int | None, Result]) -> Result:
        """Hold the conversation to its end, and return what it returns."""
        step: Callable[[], Command] = partial(next, conversation)
        while True:
            try:
                command = step()
            except StopIteration as stop:
                result: Result = stop.value
                return result
            step = self._answer(conversation, command)
            self._on_command(command)

    def flush_name(self) -> str | None:
        """Return a new name for flush queues; None when new queues are not flushed but settle."""
        return secrets.token_hex(8) if self._is_flushing else None

    def set_up(self, conversation: Generator[Round, Answers, Result]) -> Result:
        """Hold a conversation in rounds to its end, and return what it returns."""
        step: Callable[[], Round] = partial(next, conversation)
        while True:
            try:
                commands = step()
            except StopIteration as stop:
                result: Result = stop.value
                return result
            step = self._answer_round(conversation, commands)

    def count(self, queue: str) -> QueueCount | None:
        """Count what is in a queue, or None when there is no such queue."""
        try:
            answer: Any = self._channel.queue_declare(queue, passive=True).method
        except pika_errors.ChannelClosedByBroker as error:
            return self._none_when_missing(error)
        return QueueCount(answer.message_count, answer.consumer_count)

    def settle(self) -> None:
        """Wait until queues that were made just now are safe."""
        self._connection.sleep(self.settle_seconds)

    @property
    def _channel(self) -> BlockingChannel:
        if self._current is None or not self._current.is_open:
            self._current = self._connection.channel()
        return self._current

    def _answer(
        self, conversation: Generator[Command, int | None, Result], command: Command
    ) -> Callable[[], Command]:
        try:
            return partial(conversation.send, self._ask(command))
        except RabbitDelayError as error:
            return partial(conversation.throw, error)

    def _answer_round(
        self, conversation: Generator[Round, Answers, Result], commands: Round
    ) -> Callable[[], Round]:
        answers: list[int | None] = []
        for command in commands:
            try:
                answers.append(self._ask(command))
            except RabbitDelayError as error:
                return partial(conversation.throw, error)
            self._on_command(command)
        return partial(conversation.send, tuple(answers))

    def _ask(self, command: Command) -> int | None:
        match command:
            case Inspect(Queue(name)):
                counted = self.count(name)
                return None if counted is None else counted.ready
            case Inspect(Exchange(name)):
                return self._look(name)
            case CountMakers(Queue(name)):
                counted = self.count(name)
                return None if counted is None else counted.consumers
            case _:
                self._do(command)
        return None

    def _do(self, command: Command) -> None:
        match command:
            case Declare(declaration):
                self._declare(declaration)
            case Flush(queue):
                self._declare(queue)
                self._channel.queue_delete(queue.name)
            case Announce(exchange, _):
                self._announce(exchange)
            case Enter(queue):
                self._declare(queue)
                self._entered = self._connection.channel()
                self._entered.basic_consume(queue.name, lambda *_: None)
            case Leave():
                if self._entered is not None:
                    self._entered.close()
            case Wait(seconds):
                self._connection.sleep(seconds)
            case Remove(declaration):
                self._remove(declaration)

    def _look(self, exchange: str) -> int | None:
        try:
            self._channel.exchange_declare(exchange, passive=True)
        except pika_errors.ChannelClosedByBroker as error:
            return self._none_when_missing(error)
        return 0

    def _declare(self, declaration: Exchange | Queue | Binding) -> None:
        channel = self._channel
        try:
            match declaration:
                case Exchange(name, kind, arguments):
                    channel.exchange_declare(
                        name, ExchangeType(kind), durable=True, arguments=dict(arguments)
                    )
                case Queue(name, arguments):
                    channel.queue_declare(name, durable=True, arguments=dict(arguments))
                case Binding(source, destination, "queue", key):
                    channel.queue_bind(destination, source, key)
                case Binding(source, destination, _, key):
                    channel.exchange_bind(destination, source, key)
        except pika_errors.ChannelClosedByBroker as error:
            raise driver_errors.channel_error(error) from None

    def _remove(self, declaration: Exchange | Queue) -> None:
        channel = self._channel
        try:
            if isinstance(declaration, Queue):
                channel.queue_delete(declaration.name)
            else:
                channel.exchange_delete(declaration.name)
        except pika_errors.ChannelClosedByBroker as error:
            raise driver_errors.channel_error(error) from None

    def _announce(self, exchange: str) -> None:
        """Publish on a channel of its own, which is closed again: confirm mode cannot be left."""
        channel = self._connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(exchange, "", b"")
        channel.close()

    @staticmethod
    def _none_when_missing(error: pika_errors.ChannelClosedByBroker) -> None:
        if error.reply_code != reply_codes.NOT_FOUND:
            raise driver_errors.channel_error(error) from None


def _flushes(connection: BlockingConnection) -> bool:
    # pika keeps what the broker tells of itself in the connection that this one wraps.
    properties = connection._impl.server_properties or {}  # noqa: SLF001
    return is_flushed_by_declaring(str(properties.get("version", "")))
