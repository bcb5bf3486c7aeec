"""The baseline: a bare pika SelectConnection loop that pipelines confirms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pika
from pika.channel import Channel
from pika.connection import Connection
from pika.spec import Basic, BasicProperties

from benchmarks.costs import Cost, Stopwatch
from rabbitdelay.core.jobs.envelope import Message

WINDOW = 2_000
PACE_SECONDS = 0.001
"""Seconds between checks of a paced loop for messages to publish."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message and its destination."""

    exchange: str
    routing_key: str
    message: Message


def properties_of(message: Message) -> BasicProperties:
    """Return pika's form of a message's properties."""
    return BasicProperties(
        content_type=message.content_type,
        headers=dict(message.headers),
        delivery_mode=2,
        message_id=message.message_id,
        timestamp=message.timestamp_s,
    )


class PipelinedLoop:
    """Publishes the letters that `next_letter` returns, with at most WINDOW unconfirmed."""

    def __init__(self, url: str, next_letter: Callable[[], Letter | None], count: int) -> None:
        self._next_letter = next_letter
        self._count = count
        self._sent = 0
        self._lowest_tag = 1
        self._unconfirmed: set[int] = set()
        self._stopwatch = Stopwatch()
        self._cost: Cost | None = None
        self._channel: Channel | None = None
        self._connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=self._connected,
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    def run(self) -> Cost:
        """Publish all messages; return the cost from the first publish to the last confirm."""
        self._connection.ioloop.start()
        if self._cost is None:
            raise RuntimeError("the connection was lost")
        return self._cost

    def _connected(self, connection: Connection) -> None:
        connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._begin())

    def _begin(self) -> None:
        self._stopwatch = Stopwatch()
        self._pump()

    def _pump(self) -> None:
        assert self._channel is not None
        while self._sent < self._count and len(self._unconfirmed) < WINDOW:
            letter = self._next_letter()
            if letter is None:
                return
            self._sent += 1
            self._unconfirmed.add(self._sent)
            self._channel.basic_publish(
                letter.exchange,
                letter.routing_key,
                letter.message.body,
                properties_of(letter.message),
                mandatory=True,
            )

    def _confirmed(self, frame: Any) -> None:  # noqa: ANN401 - pika's method frame
        if isinstance(frame.method, Basic.Nack):
            raise RuntimeError("the broker refused a message")  # noqa: TRY004 - not a type error
        self._forget(frame.method.delivery_tag, multiple=frame.method.multiple)
        if self._sent == self._count and not self._unconfirmed:
            self._cost = self._stopwatch.cost(self._count)
            self._connection.close()
        else:
            self._pump()

    def _forget(self, tag: int, *, multiple: bool) -> None:
        if not multiple:
            self._unconfirmed.discard(tag)
            return
        self._unconfirmed.difference_update(range(self._lowest_tag, tag + 1))
        self._lowest_tag = max(self._lowest_tag, tag + 1)


class PacedLoop(PipelinedLoop):
    """A paced loop: `next_letter` returns None while no message is due, and is called again."""

    def _begin(self) -> None:
        super()._begin()
        self._tick()

    def _tick(self) -> None:
        self._pump()
        if self._sent < self._count:
            self._connection.ioloop.call_later(PACE_SECONDS, self._tick)


def publish_all(url: str, letters: list[Letter]) -> Cost:
    """Publish as fast as the broker confirms."""
    source: Iterator[Letter] = iter(letters)
    return PipelinedLoop(url, lambda: next(source), len(letters)).run()
