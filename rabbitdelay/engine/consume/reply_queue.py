"""Replies: the responses that one client waits for, in a queue of its own."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work import responses
from rabbitdelay.core.work.responses import Response
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import Subscription
from rabbitdelay.engine.flow import Bell, Flow, Wait, until
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import ClientClosed, ConnectionFailed, NoResponse
from rabbitdelay.models import Job

MOST_KEPT = 10_000
"""So many responses are kept that nobody has asked for yet; then the oldest go."""
PREFETCH = 500

Key = tuple[str, str]
Found = Response | NoResponse


class Replies:
    """Consumes the client's reply queue; everything on the wire's thread but `start` and `wait`."""

    def __init__(self, consumer: Consumer, name: str) -> None:
        part = consumer.topology.replies(name)
        self.queue = part.queue.name
        """What jobs whose responses are wanted carry as reply_to."""
        self._consumer = consumer
        # It is made before the job that wants the response is put: perhaps the first of all.
        self._subscription = Subscription(
            consumer, self.queue, (part,), PREFETCH, self, may_found=True
        )
        self._is_wanted = False
        self._ready: Future[None] = Future()
        self._lock = Lock()
        self._changed = Bell()
        self._found: OrderedDict[Key, Found] = OrderedDict()
        self._closed = False

    # From any thread

    def start(self, timeout: float) -> Flow[None]:
        """Consume; return when responses would arrive."""
        if self._ready.done() and self._ready.exception() is not None:
            self._ready, self._is_wanted = Future(), False  # it may work by now
        if not self._ready.done():
            self._consumer.call(self._want)
        try:
            yield Wait(self._ready, timeout)
        except TimeoutError:
            error = self._consumer.first.error
            raise error or ConnectionFailed("the broker does not answer") from None

    def wait(self, job: Job, deadline: float | None) -> Flow[Response | None]:
        """Wait for the response to a job; None when none came until the deadline."""
        key = (job.id, job.token)
        yield from until(self._changed, lambda: key in self._found or self._closed, deadline)
        with self._lock:
            found = self._found.pop(key, None)
        if found is None and self._closed:
            raise ClientClosed("the client was closed before the response came")
        if isinstance(found, NoResponse):
            raise found
        return found

    # On the wire's thread

    def _want(self) -> None:
        if not self._is_wanted:
            self._is_wanted = True
            self._subscription.begin()

    def delivered(self, delivery: Delivery) -> None:
        """A response has come."""
        message = delivery.message
        token = message.headers.get("rd-token")
        key = (message.correlation_id or "", token if isinstance(token, str) else "")
        with self._lock:
            self._found[key] = responses.read(message)
            if len(self._found) > MOST_KEPT:
                self._found.popitem(last=False)
        self._changed.ring()
        self._consumer.send(encode.ack(delivery.channel, delivery.tag))

    def consuming(self) -> None:
        """Responses would arrive from now on."""
        if not self._ready.done():
            self._ready.set_result(None)

    def interrupted(self, lost: Sequence[Lease]) -> None:
        """The queue is gone, and is made again."""

    def failed(self, error: Exception) -> None:
        """It never worked: whoever waits is told, and the next who asks tries again."""
        if not self._ready.done():
            self._ready.set_exception(error)

    # The connection comes and goes

    def connected(self) -> None:
        """Consume the queue; it is made anew when the client was away for too long."""
        if self._is_wanted:
            self._subscription.begin()

    def disconnected(self, _error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """It is consumed again with the next connection."""
        self._subscription.connection_lost()

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """If it was ours, consume again."""
        self._subscription.channel_lost(number, error)

    def expired(self, _expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Responses have no ttr."""

    def read(self) -> None:
        """Nothing more to do."""

    def closed(self) -> None:
        """Nothing will come any more."""
        self._closed = True
        self._changed.ring()
        if not self._ready.done():
            self._ready.set_exception(ClientClosed("the client was closed"))
