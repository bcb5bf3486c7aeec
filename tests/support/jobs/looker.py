"""A reader of all messages of a queue, which leaves them in it."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rabbitdelay import Client, RetryPolicy
from rabbitdelay.core.amqp import decode
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.transport import Channel, nothing
from rabbitdelay.errors import ConnectionFailed
from rabbitdelay.executors.blocking import drive
from tests.support.patience import patience, wait_until


class Looker:
    """Reads all messages of a queue, including headers that pika cannot decode."""

    def __init__(self, client: Client, queue: str) -> None:
        self._queue = queue
        self.messages: list[Message] = []
        self.originals: list[Message] = []
        """The same messages, with each header as its bytes."""
        self._consumer, _ = drive(
            client._engine.connections.new_consumer(lambda _: Policies(RetryPolicy()))
        )

    def __enter__(self) -> Self:
        self._consumer.start(self)
        drive(self._consumer.connected(patience(10)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        drive(self._consumer.close(1))

    def wait_for(self, count: int, *, seconds: float = 15.0) -> list[Message]:
        """Wait until `count` messages have arrived, and return all of them."""
        what = f"{self._queue}: {count}"
        wait_until(lambda: len(self.messages) >= count, seconds=seconds, what=what)
        return list(self.messages)

    def connected(self) -> None:
        """Consume the queue without acknowledging, so that the messages stay in it."""
        self._consumer.channels.open(self._opened, self._take)

    def _opened(self, channel: Channel) -> None:
        channel.consume(self._queue, {}, nothing)

    def _take(self, found: Delivery | GetEmpty) -> None:
        assert isinstance(found, Delivery)
        self.originals.append(decode.original(found))
        self.messages.append(found.message)

    def disconnected(self, error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """Do nothing: the channel is opened again after the reconnect."""

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """Do nothing: no further messages are expected."""

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing: no job is leased."""

    def read(self) -> None:
        """Do nothing: `_take` has recorded the messages."""

    def closed(self) -> None:
        """Do nothing: no further messages are expected."""
