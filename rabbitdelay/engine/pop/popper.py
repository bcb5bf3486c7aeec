"""Calls of pop: reserve one job for a caller, or several at once.

If jobs are ready, a pop is one basic.get per topic, followed by consumers if it wants more jobs. If
none is ready, a pop is a consumer that is cancelled as soon as enough jobs have arrived. The broker
sends a job the moment it becomes ready, and jobs that were not requested are not kept.

Surplus jobs are requeued once, after all consumers are cancelled. If they were requeued earlier,
the broker would deliver them here again, and RabbitMQ 3.10 counts each delivery: at the delivery
limit the job would be buried.
"""

from collections.abc import Sequence
from functools import partial

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.pop.pop_calls import PopCalls
from rabbitdelay.engine.pop.pop_request import PopRequest
from rabbitdelay.engine.pop.pop_server import PopServer
from rabbitdelay.errors import ClientClosed, ConnectionFailed

LOOK_SECONDS = 1.0
MAX_AT_ONCE = 65_535
"""The largest prefetch, which has 16 bits."""


class Popper:
    """The pops of one client. Everything but `pop` runs on the transport's thread."""

    def __init__(self, consumer: Consumer, log_reader: LogReader) -> None:
        self.consumer = consumer
        self.calls = PopCalls(consumer, log_reader.known, log_reader.status)
        self._server = PopServer(consumer, log_reader, self.calls)
        log_reader.status.watch(self._may_have_changed)

    # From any thread

    def pop(self, topics: Sequence[str], most: int, deadline: float | None) -> Flow[list[Lease]]:
        """Reserve jobs, and wait for them. If the caller stops waiting, they are requeued."""
        request = PopRequest(topics, most, deadline)
        if not self.consumer.call(partial(self._begin, request)):
            raise ClientClosed("the client is closed")
        try:
            return (yield from self._result(request))
        except BaseException:
            self.consumer.call(partial(self.calls.abandon, request))
            raise

    @property
    def problem(self) -> Exception | None:
        """The error of a pop that ended now without a job; None if it would not be an error."""
        return self.calls.problem

    def _result(self, request: PopRequest) -> Flow[list[Lease]]:
        """Wait for the jobs; also notice the death of the transport's thread."""
        while True:
            try:
                leases: list[Lease] = yield Wait(request.future, LOOK_SECONDS)
            except TimeoutError:
                if self.consumer.has_ended and not request.future.done():
                    raise ClientClosed("the client was closed") from None
            else:
                return leases

    # On the transport's thread

    def _begin(self, request: PopRequest) -> None:
        self.calls.add(request)
        self._server.serve(request)

    def _may_have_changed(self) -> None:
        for request in self.calls:
            self._server.log_changed(request)

    # Called by the consumer

    def connected(self) -> None:
        """Serve the waiting pops again."""
        for request in self.calls:
            self._server.serve(request)

    def disconnected(self, error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """Wait for the next connection with the pops that have time left."""
        self._server.connection_lost()
        for request in self.calls:
            self.calls.connection_lost(request, error)

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """Handle a channel that the broker closed.

        Its queue was deleted, or a job was unacked for too long.
        """
        self._server.channel_lost(number, error)

    def expired(self, _expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing: the caller gets LeaseLost when it settles the job."""

    def read(self) -> None:
        """Do nothing: deliveries are handled one by one."""

    def closed(self) -> None:
        """Fail all pops."""
        for request in self.calls:
            if request.channel is not None:
                self.consumer.call(request.channel.stop)  # has no effect if the thread has ended
                request.channel = None
            self.calls.fail(request, ClientClosed("the client was closed"))
