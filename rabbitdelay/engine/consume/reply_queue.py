"""The reply queue of one client, on which it receives the responses to its jobs."""

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
"""Maximum number of responses that are kept for later calls of `wait`; then the oldest is
dropped."""
PREFETCH = 500

Key = tuple[str, str]
Found = Response | NoResponse


class ReplyQueue:
    """Consumes the client's reply queue.

    Everything but `start` and `wait` runs on the transport's thread.
    """

    def __init__(self, consumer: Consumer, name: str) -> None:
        part = consumer.topology.replies(name)
        self.queue = part.queue.name
        """Name of the reply queue, the `reply_to` of jobs whose response is wanted."""
        self._consumer = consumer
        # Declared before the job is put, which may be the first one in the namespace.
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
        """Start to consume, and wait until responses can arrive."""
        if self._ready.done() and self._ready.exception() is not None:
            self._ready, self._is_wanted = Future(), False  # try again: the cause may be gone
        if not self._ready.done():
            self._consumer.call(self._want)
        try:
            yield Wait(self._ready, timeout)
        except TimeoutError:
            error = self._consumer.first.error
            raise error or ConnectionFailed("the broker does not answer") from None

    def wait(self, job: Job, deadline: float | None) -> Flow[Response | None]:
        """Wait for the response to a job; return None if the deadline passes."""
        key = (job.id, job.token)
        yield from until(
            self._changed,
            lambda: key in self._found or self._closed,
            deadline,
            self._consumer.monotonic,
        )
        with self._lock:
            found = self._found.pop(key, None)
        if found is None and self._closed:
            raise ClientClosed("the client was closed before the response arrived")
        if isinstance(found, NoResponse):
            raise found
        return found

    # On the transport's thread

    def _want(self) -> None:
        if not self._is_wanted:
            self._is_wanted = True
            self._subscription.begin()

    def delivered(self, delivery: Delivery) -> None:
        """Keep a response, and notify the waiting callers."""
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
        """Note that responses can arrive from now on."""
        if not self._ready.done():
            self._ready.set_result(None)

    def interrupted(self, lost: Sequence[Lease]) -> None:
        """Do nothing: the queue was deleted, and is declared again."""

    def failed(self, error: Exception) -> None:
        """Report the error to callers of `start`; the next call tries again."""
        if not self._ready.done():
            self._ready.set_exception(error)

    # Called by the consumer

    def connected(self) -> None:
        """Consume the queue; declare it again if it expired while the client was away."""
        if self._is_wanted:
            self._subscription.begin()

    def disconnected(self, _error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """Forget the channel; the next connection opens another one."""
        self._subscription.connection_lost()

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """Consume again if it was this queue's channel."""
        self._subscription.channel_lost(number, error)

    def expired(self, _expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing: responses have no ttr."""

    def read(self) -> None:
        """Do nothing: responses are acknowledged one by one."""

    def closed(self) -> None:
        """Wake all waiting callers."""
        self._closed = True
        self._changed.ring()
        if not self._ready.done():
            self._ready.set_exception(ClientClosed("the client was closed"))
