"""A plain AMQP consumer that records the messages of a queue and their arrival times."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.support.patience import patience, wait_until


@dataclass(frozen=True, slots=True)
class Received:
    """One message as it arrived."""

    id: str
    body: bytes
    headers: dict[str, Any]
    received_ms: float
    properties: pika.BasicProperties

    @property
    def lateness_ms(self) -> float:
        """Time from due to arrival, in milliseconds. A negative value would mean early delivery."""
        return self.received_ms - float(self.headers["rd-due"])


@dataclass
class Receiver:
    """Consumes and acknowledges on a thread of its own, through broker restarts."""

    url: str
    queue: str
    messages: list[Received] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(patience(10))

    @property
    def ids(self) -> Counter[str]:
        """The ids that arrived, with their counts."""
        return Counter(message.id for message in list(self.messages))

    def wait_for(self, *ids: str, seconds: float = 15.0) -> None:
        """Wait until a message with each of these ids has arrived."""
        wait_until(
            lambda: set(ids) <= self.ids.keys(),
            seconds=seconds,
            what=f"{self.queue} got {len(self.messages)} of {len(ids)}",
        )

    def wait_for_count(self, count: int, *, seconds: float = 15.0) -> list[Received]:
        """Wait until `count` messages have arrived, and return all of them."""
        wait_until(lambda: len(self.messages) >= count, seconds=seconds, what=self.queue)
        return list(self.messages)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._consume()
            except (AMQPError, OSError):
                self._stop.wait(0.1)

    def _consume(self) -> None:
        parameters = pika.URLParameters(self.url)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=500)
            channel.basic_consume(self.queue, self._take)
            while not self._stop.is_set():
                connection.process_data_events(0.05)

    def _take(
        self,
        channel: BlockingChannel,
        method: Any,  # noqa: ANN401 - pika has no types for it
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        now_ms = time.time_ns() / 1_000_000
        headers = dict(properties.headers or {})
        self.messages.append(
            Received(properties.message_id or "", body, headers, now_ms, properties)
        )
        channel.basic_ack(method.delivery_tag)
