"""Run a conversation on a connection, sending the commands of a round together."""

import secrets
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from rabbitdelay.core.amqp import encode, reply_codes
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.topology.objects import Declaration, Exchange, Queue
from rabbitdelay.core.topology.setup import (
    Announce,
    Answers,
    CountMakers,
    Declare,
    Enter,
    Flush,
    Inspect,
    Leave,
    PollAfter,
    Remove,
    Round,
    is_flushed_by_declaring,
)
from rabbitdelay.engine.transport import Channel, Closed, Connection, Then, nothing
from rabbitdelay.system_time import TimeSource

_EMPTY = Message(b"", {})
Result = TypeVar("Result")
OnRound = Callable[[Round], None]
QUESTIONS_AT_ONCE = 64
"""Maximum number of concurrent queries. Each has a channel; a connection allows 2047."""


def flush_name(connection: Connection) -> str | None:
    """Return an unused name for flush queues; None for broker versions that cannot be flushed."""
    return secrets.token_hex(8) if is_flushed_by_declaring(connection.broker_version) else None


class Timing(Protocol):
    """The time of a transport."""

    @property
    def monotonic(self) -> TimeSource:
        """Returns the seconds on its monotonic clock."""

    @property
    def call_later(self) -> Callable[[float, Then], object]:
        """Schedules a function after a delay."""


class Declarer(Generic[Result]):
    """Sends the commands that a conversation yields, on the transport's thread; calls `done` once.

    Declarations share a channel, which keeps them in order. Each query has a channel of its own,
    because the broker closes a channel on which a missing object is asked for.
    """

    def __init__(
        self,
        connection: Connection,
        conversation: Generator[Round, Answers, Result],
        done: Callable[[Result | Exception], None],
        timing: Timing,
        on_round: OnRound = nothing,
    ) -> None:
        self._connection = connection
        self._conversation = conversation
        self._timing = timing
        self._done = done
        self._on_round = on_round
        self._round = _Answers(0, nothing)
        self._commands: Round = ()
        self._asking = 0
        self._unasked: deque[Callable[[Channel], None]] = deque()
        self._channel: Channel | None = None
        self._entered: tuple[Channel, str] | None = None
        """The channel and tag of the consumer that marks this client as creating queues."""
        self._is_abandoned = False
        self.answered_at = self._timing.monotonic()
        """Monotonic time of the broker's last answer to a round, or of the start."""
        self.round_trip_seconds: float | None = None
        """Duration of the shortest round."""

    def start(self) -> None:
        """Start; `done` gets the result of the conversation, or the error that ended it."""
        self._advance(partial(next, self._conversation))

    def abandon(self) -> None:
        """Stop without calling `done`."""
        self._round.is_over = True
        self._is_abandoned = True
        self._close()

    def _advance(self, step: Callable[[], Round]) -> None:
        self._round.is_over = True
        self._unasked.clear()
        try:
            commands = step()
        except StopIteration as stop:
            self._finish(stop.value)
        except Exception as error:  # noqa: BLE001 - passed to `done`
            self._finish(error)
        else:
            self._ask(commands)

    def _ask(self, commands: Round) -> None:
        self._commands = commands
        round_ = self._round = _Answers(len(commands), self._answered)
        declares: list[tuple[int, Declare | Flush]] = []
        for position, command in enumerate(commands):
            match command:
                case Declare() | Flush():
                    declares.append((position, command))
                case Inspect() | CountMakers():
                    self._question(round_, position, command)
                case Announce(exchange, _):
                    self._announce(round_, position, exchange)
                case Enter(queue):
                    self._enter(round_, position, queue)
                case Leave():
                    self._leave(round_, position)
                case PollAfter(seconds):
                    self._timing.call_later(seconds, partial(round_.answer, position, None))
                case Remove(declaration):
                    self._remove(round_, position, declaration)
        if declares:
            self._declare(round_, declares)
        round_.check()

    def _answered(self, answers: Answers) -> None:
        now = self._timing.monotonic()
        seconds, self.answered_at = now - self.answered_at, now
        self.round_trip_seconds = min(seconds, self.round_trip_seconds or seconds)
        self._advance(partial(self._go_on, self._commands, answers))

    def _go_on(self, commands: Round, answers: Answers) -> Round:
        self._on_round(commands)
        return self._conversation.send(answers)

    def _failed(self, round_: "_Answers", closed: Closed) -> None:
        if not round_.is_over:
            self._advance(partial(self._conversation.throw, closed.error()))

    def _question(self, round_: "_Answers", position: int, command: Inspect | CountMakers) -> None:
        def opened(channel: Channel) -> None:
            def found(messages: int = 0, consumers: int = 0) -> None:
                channel.close()
                self._ask_next()
                round_.answer(position, consumers if type(command) is CountMakers else messages)

            channel.on_closed(self._none_when_missing(round_, position))
            match command:
                case Inspect(Exchange(name)):
                    channel.look(name, found)
                case Inspect(Queue(name)) | CountMakers(Queue(name)):
                    channel.count(name, found)

        self._open_for_question(opened)

    def _open_for_question(self, opened: Callable[[Channel], None]) -> None:
        if self._asking < QUESTIONS_AT_ONCE:
            self._asking += 1
            self._connection.open_channel(opened)
        else:
            self._unasked.append(opened)

    def _ask_next(self) -> None:
        """Count an answered query, and start one that is waiting."""
        self._asking -= 1
        if self._unasked:
            self._open_for_question(self._unasked.popleft())

    def _declare(self, round_: "_Answers", declares: Sequence[tuple[int, Declare | Flush]]) -> None:
        """Declare everything. The reply to the last declaration confirms all of them."""
        *others, last = (command for _, command in declares)

        def declared() -> None:
            for position, _ in declares:
                round_.answer(position, None)

        def send() -> None:
            assert self._channel is not None
            if round_.is_over:
                return
            for command in others:
                self._channel.declare(_declaration(command))
            self._channel.declare(_declaration(last), declared)
            if isinstance(last, Flush):
                self._channel.delete(last.queue.name)

        self._with_channel(send)

    def _with_channel(self, then: Then) -> None:
        if self._channel is not None and self._channel.is_open:
            then()
            return

        def opened(channel: Channel) -> None:
            self._channel = channel
            if self._is_abandoned:
                channel.close()
                return
            channel.on_closed(lambda _, closed: self._failed(self._round, closed))
            then()

        self._connection.open_channel(opened)

    def _announce(self, round_: "_Answers", position: int, exchange: str) -> None:
        """Publish on a separate channel and close it, because confirm mode cannot be left."""

        def opened(channel: Channel) -> None:
            def confirmed(_confirm: object) -> None:
                channel.close()
                round_.answer(position, None)

            channel.on_closed(lambda _, closed: self._failed(round_, closed))
            channel.confirm(confirmed, nothing, lambda: publish(channel))

        def publish(channel: Channel) -> None:
            data = encode.publish(channel.number, exchange, "", _EMPTY, self._connection.frame_max)
            self._connection.send_frames(data)

        self._connection.open_channel(opened)

    def _enter(self, round_: "_Answers", position: int, queue: Queue) -> None:
        """Consume the queue that counts makers, on a channel that closes with this setup."""

        def opened(channel: Channel) -> None:
            if self._is_abandoned:
                channel.close()
                return
            channel.on_closed(lambda _, closed: self._failed(self._round, closed))
            channel.declare(queue)
            entered = partial(round_.answer, position, None)
            self._entered = (channel, channel.consume(queue.name, {}, entered))

        self._connection.open_channel(opened)

    def _leave(self, round_: "_Answers", position: int) -> None:
        assert self._entered is not None
        (channel, tag), self._entered = self._entered, None

        def left() -> None:
            channel.close()
            round_.answer(position, None)

        channel.cancel(tag, left)

    def _remove(self, round_: "_Answers", position: int, declaration: Queue | Exchange) -> None:
        def send() -> None:
            assert self._channel is not None
            if not round_.is_over:
                self._channel.remove(declaration, partial(round_.answer, position, None))

        self._with_channel(send)

    def _none_when_missing(
        self, round_: "_Answers", position: int
    ) -> Callable[[Channel, Closed], None]:
        def closed(_channel: Channel, closed: Closed) -> None:
            self._ask_next()
            if closed.code == reply_codes.NOT_FOUND:
                round_.answer(position, None)
            else:
                self._failed(round_, closed)

        return closed

    def _finish(self, result: Result | Exception) -> None:
        self._close()
        self._done(result)

    def _close(self) -> None:
        entered = self._entered[0] if self._entered is not None else None
        for channel in (self._channel, entered):
            if channel is not None and channel.is_open:
                channel.close()


def _declaration(command: Declare | Flush) -> Declaration:
    return command.queue if isinstance(command, Flush) else command.declaration


class _Answers:
    """Collects the answers to one round. Answers to an earlier round are ignored."""

    def __init__(self, count: int, complete: Callable[[Answers], None]) -> None:
        self.is_over = False
        self._answers: list[int | None] = [None] * count
        self._left = count
        self._complete = complete

    def answer(self, position: int, answer: int | None) -> None:
        """Record one answer."""
        self._answers[position] = answer
        self._left -= 1
        self.check()

    def check(self) -> None:
        """Pass the answers on once all have arrived, which is at once for an empty round."""
        if not self._left and not self.is_over:
            self._complete(tuple(self._answers))
