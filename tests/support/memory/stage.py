"""A stage: the broker in memory, with the events of a race under the control of a test.

The clock stands still except in `advance`, and in calls of a client that wait. To construct an
interleaving, begin it with calls that do not wait, such as `put_nowait`, hold one direction of a
connection, and let things arrive one by one:

    stage.connection("publisher").to_client.silence()
    put = client.put_nowait("t")
    stage.settle()
    stage.connection("publisher").to_client.let_through(1)
    stage.settle()

Clients and the broker run in a thread of their own while the test goes on. Settle before the test
does anything else whose order matters: the verbs of the stage do so themselves, before and after
what they do, but the calls of a client and the methods of a pipe do not.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.futures import Future
from rabbitdelay.testing import MemoryBroker
from rabbitdelay.testing.driver.connection import MemoryConnection
from rabbitdelay.testing.model import failures
from rabbitdelay.testing.model.channel import Channel
from rabbitdelay.testing.model.session import Session
from rabbitdelay.testing.model.vhost import Vhost
from tests.support.patience import patience

Result = TypeVar("Result")
START = datetime(2030, 1, 1, tzinfo=UTC)
ALARM = "low on memory"


class Stage(MemoryBroker):
    """A broker in memory with access to what happens below the clients."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the options of MemoryBroker
        super().__init__(**{"start": START} | options)
        self.topology = Topology("rabbitdelay")

    # Time

    def settle(self) -> None:
        """Run everything that can happen without the clock, and return."""
        self.run_until_idle()

    @property
    def seconds(self) -> float:
        """Seconds since the stage was set."""
        return (self.now - START).total_seconds()

    # Connections

    def connections_of(self, purpose: str) -> list[MemoryConnection]:
        """Return the connections of one purpose: publisher, consumer or administration."""
        name = f"rabbitdelay-{purpose}"
        return [one for one in self.links.connections if one.name == name]

    def connection(self, purpose: str) -> MemoryConnection:
        """Return the only connection of one purpose."""
        (found,) = self.connections_of(purpose)
        return found

    def session(self, purpose: str) -> Session:
        """Return the only connection of one purpose, as the broker sees it."""
        session = self.connection(purpose).session
        assert session is not None
        return session

    # Channels, as the broker sees them

    def confirm_channels(self, purpose: str = "publisher") -> list[Channel]:
        """Return the channels on which published messages are confirmed, by ascending number."""
        channels = (one for one in self.session(purpose).channels if one.has_confirms)
        return sorted(channels, key=lambda one: one.number)

    def close_channel(self, purpose: str, number: int, code: int, text: str) -> None:
        """Have the broker close a channel because of an error."""

        def fail(_channel: Channel) -> NoReturn:
            raise failures.ChannelError(code, text)

        session = self.session(purpose)
        self.on_broker(lambda _: session.on_channel(number, fail))

    # Queues

    def refuse(self, queue: str) -> None:
        """Have a queue refuse every message, as a policy with a length limit does."""
        self._limit(queue, 0)

    def accept(self, queue: str) -> None:
        """Have a queue accept messages again."""
        self._limit(queue, None)

    def silence_queue(self, queue: str) -> None:
        """Have a queue answer nothing, as when its leader is on a node that hangs.

        What is sent to it meanwhile is never answered. The queue does not have to exist.
        """
        self.on_broker(lambda vhost: vhost.silent.add(queue))

    def restore_queue(self, queue: str) -> None:
        """Have a queue answer again, on channels that have not asked it meanwhile."""
        self.on_broker(lambda vhost: vhost.silent.discard(queue))

    def delete_queue(self, queue: str) -> None:
        """Delete a queue by an operator's hand."""
        self.on_broker(lambda vhost: vhost.delete_queue(queue))

    def messages(self, queue: str) -> list[str | None]:
        """Return the ids of the ready messages of a queue; none if it does not exist."""

        def ids(vhost: Vhost) -> list[str | None]:
            found = vhost.queues.get(queue)
            entries = () if found is None else found.entries()
            return [entry.message.content.text(encode.MESSAGE_ID) for entry in entries]

        return self.on_broker(ids)

    def has_queue(self, queue: str) -> bool:
        """Whether a queue exists."""
        return self.on_broker(lambda vhost: queue in vhost.queues)

    # Alarms

    def alarm(self, reason: str = ALARM) -> None:
        """Raise an alarm. The broker blocks a connection with its next publish."""
        self.on_broker(lambda _: self.links.endpoint.sessions.alarm(reason))

    def end_alarm(self) -> None:
        """End the alarm."""
        self.on_broker(lambda _: self.links.endpoint.sessions.alarm(None))

    # The broker's own time

    def on_broker(self, act: Callable[[Vhost], Result]) -> Result:
        """Do something in the place of the broker, and settle before and afterwards."""
        self.settle()
        answer: Future[Result] = Future()
        endpoint = self.links.endpoint

        def run() -> None:
            try:
                answer.set_result(act(endpoint.vhost))
            except BaseException as error:  # noqa: BLE001 - raised again in the test
                answer.set_exception(error)

        endpoint.timeline.post(endpoint.place, run)
        result = answer.result(patience(10))
        self.settle()
        return result

    def _limit(self, name: str, most: int | None) -> None:
        def limit(vhost: Vhost) -> None:
            queue = vhost.queues[name]
            rejects = most is not None or "x-overflow" in queue.arguments.all
            queue.arguments = replace(queue.arguments, max_length=most, rejects_when_full=rejects)

        self.on_broker(limit)
