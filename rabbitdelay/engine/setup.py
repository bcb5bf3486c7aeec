"""Driving a setup conversation: one channel, replaced when the broker closes it."""

from collections.abc import Callable
from functools import partial

from rabbitdelay.core import frames, replies
from rabbitdelay.core.envelope import Message
from rabbitdelay.core.setup import Announce, Command, Conversation, Declare, Inspect
from rabbitdelay.core.topology import Exchange, Queue
from rabbitdelay.engine.wire import Channel, Closed, Link, nothing

_EMPTY = Message(b"", {})
Done = Callable[[bool | Exception], None]


class SetupDriver:
    """Asks the broker what the conversation yields, on the wire's thread, and calls `done` once."""

    def __init__(self, link: Link, conversation: Conversation, done: Done) -> None:
        self._link = link
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
            channel.on_closed(self._closed)
            then()

        self._link.open_channel(opened)

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
        match command:
            case Inspect(Queue(name)):
                self._open_channel.count(name, self._counted)
            case Inspect(Exchange(name)):
                self._open_channel.look(name, self._answered)
            case Declare(declaration):
                self._open_channel.declare(declaration, self._answered)
            case Announce(exchange):
                self._announce(exchange)

    def _announce(self, exchange: str) -> None:
        """Publish on a channel of its own, which is closed again: confirm mode cannot be left."""

        def opened(channel: Channel) -> None:
            def confirmed(_confirm: object) -> None:
                channel.close()
                self._reply(None)

            channel.on_closed(self._closed)
            channel.confirm(confirmed, nothing, lambda: publish(channel))

        def publish(channel: Channel) -> None:
            data = frames.publish(channel.number, exchange, "", _EMPTY, self._link.frame_max)
            self._link.send_frames(data)

        self._link.open_channel(opened)

    def _counted(self, ready: int, _consumers: int) -> None:
        self._reply(ready)

    def _answered(self) -> None:
        self._reply(None if isinstance(self._command, Declare) else 0)

    def _closed(self, _channel: Channel, closed: Closed) -> None:
        if isinstance(self._command, Inspect) and closed.code == replies.NOT_FOUND:
            self._open(lambda: self._reply(None))
            return
        error = closed.error()
        self._open(lambda: self._advance(partial(self._conversation.throw, error)))

    def _finish(self, result: bool | Exception) -> None:  # noqa: FBT001 - what was returned
        if self._channel is not None and self._channel.is_open:
            self._channel.close()
        self._done(result)

    @property
    def _open_channel(self) -> Channel:
        assert self._channel is not None
        return self._channel
