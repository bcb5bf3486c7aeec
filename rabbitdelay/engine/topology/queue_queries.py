"""Asking: small questions about queues, over the connection of a consumer."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.topology.counts import QueueCount
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport import Channel, Closed
from rabbitdelay.errors import ConnectionFailed

Answer = TypeVar("Answer")
Ask = Callable[[Channel, Callable[[Answer], None]], None]
AGAIN_SECONDS = 0.25
"""How often a question is asked that got no answer, because the connection went."""


class Asker:
    """Asks on a channel of its own for each question: to be told no closes it."""

    def __init__(self, consumer: Consumer, timeout: float) -> None:
        self._consumer = consumer
        self._timeout = timeout

    def count(self, queue: str) -> Flow[QueueCount | None]:
        """Count what is in a queue, or None when there is no such queue."""

        def ask(channel: Channel, answered: Callable[[QueueCount], None]) -> None:
            channel.count(queue, lambda ready, consumers: answered(QueueCount(ready, consumers)))

        return self._ask(ask)

    def purge(self, queue: str) -> Flow[int | None]:
        """Empty a queue; return how many messages were in it, or None when there is none."""

        def ask(channel: Channel, answered: Callable[[int], None]) -> None:
            channel.purge(queue, answered)

        return self._ask(ask)

    def _ask(self, ask: Ask[Answer]) -> Flow[Answer | None]:
        deadline = time.monotonic() + self._timeout
        future: Future[Answer | None] = Future()
        while time.monotonic() < deadline:
            self._consumer.call(partial(self._begin, ask, future))
            with suppress(TimeoutError):
                answer: Answer | None = yield Wait(future, AGAIN_SECONDS)
                return answer
        raise self._consumer.first.error or ConnectionFailed("the broker does not answer")

    def _begin(self, ask: Ask[Answer], future: Future[Answer | None]) -> None:
        link = self._consumer.link
        if link is not None and link.is_open and not future.done():
            link.open_channel(partial(self._opened, ask, future))

    @staticmethod
    def _opened(ask: Ask[Answer], future: Future[Answer | None], channel: Channel) -> None:
        def closed(_channel: Channel, closed: Closed) -> None:
            if future.done():
                return
            if closed.code == reply_codes.NOT_FOUND:
                future.set_result(None)
            else:
                future.set_exception(closed.error())

        def answered(answer: Answer) -> None:
            channel.close()
            if not future.done():
                future.set_result(answer)

        channel.on_closed(closed)
        ask(channel, answered)
