"""The calls of pop that are not over: the jobs that they have, and how they end."""

from collections.abc import Iterator
from functools import partial

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.log_status import LogStatus
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.pop.lingering import Lingering
from rabbitdelay.engine.pop.pop_request import PopRequest, PopState
from rabbitdelay.errors import ClientClosed, ConnectionFailed, CutOff


class PopCalls:
    """The calls of pop of one client, on the transport's thread."""

    def __init__(self, consumer: Consumer, known: KnownDeletes, status: LogStatus) -> None:
        self._consumer = consumer
        self._known = known
        self._status = status
        self._requests: set[PopRequest] = set()
        self._lingering = Lingering(consumer, self.end)

    def __iter__(self) -> Iterator[PopRequest]:
        """Iterate over a copy, because pops may end meanwhile."""
        return iter(list(self._requests))

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: PopRequest) -> None:
        """Add a call, which ends at its deadline."""
        self._requests.add(request)
        if request.deadline is not None and self.has_time(request):
            rest = request.deadline - self._consumer.monotonic()
            request.timer = self._consumer.call_later(max(0.0, rest), partial(self.end, request))

    def has_time(self, request: PopRequest) -> bool:
        """Whether a pop may wait longer."""
        return request.deadline is None or request.deadline > self._consumer.monotonic()

    def waits(self, request: PopRequest) -> bool:
        """Return whether a pop for which no job is ready goes on waiting; end it if not."""
        if not self.has_time(request):
            self.end(request)
        return not request.is_over

    def suspend(self, request: PopRequest) -> None:
        """Wait until jobs can be handed out; end a pop that has a job or no time left."""
        request.state = PopState.SUSPENDED
        if request.leases or not self.has_time(request):
            self.end(request)

    def got(self, request: PopRequest, lease: Lease) -> None:
        """Add a job to a pop."""
        self._consumer.settlement.reserve(lease)
        request.leases.append(lease)
        if len(request.leases) == request.most:
            self.end(request)

    def linger(self, request: PopRequest) -> None:
        """End a pop when no further job arrives for a moment."""
        self._lingering.start(request)

    def end(self, request: PopRequest) -> None:
        """End a pop with the jobs that it has, or with the reason why it has none."""
        if request.is_over:
            return
        error = self.problem or self._unproven(request)
        if not request.leases and error is not None:
            self.fail(request, error)
            return
        self._stop(request)
        request.future.set_result(request.leases)

    def fail(self, request: PopRequest, error: Exception) -> None:
        """End a pop with an error."""
        if not request.is_over:
            self._stop(request)
            request.future.set_exception(error)

    def connection_lost(self, request: PopRequest, error: ConnectionFailed) -> None:
        """Wait for the next connection, if there is time left."""
        request.lose_jobs()
        self._lingering.stop(request)
        if not self.has_time(request):
            self.fail(request, error)

    def abandon(self, request: PopRequest) -> None:
        """Return the jobs of a caller that has stopped waiting."""
        self.fail(request, ClientClosed("the caller stopped waiting"))
        for lease in request.leases:
            self._consumer.settlement.hand_back(lease)

    @property
    def problem(self) -> Exception | None:
        """The error of a pop that ended now without a job; None if it would not be an error."""
        error = self._consumer.first.error
        if error is not None or self._known.is_current:
            return error
        return self._status.failure or CutOff(self._status.text)

    def _unproven(self, request: PopRequest) -> Exception | None:
        """Return the error if a job cannot be handed out without the log of deletes; else None."""
        if request.channel is not None and request.channel.is_unproven:
            return CutOff(
                "a job is ready, but whether it was deleted is unknown, because the log of deletes "
                "does not answer"
            )
        return None

    def _stop(self, request: PopRequest) -> None:
        request.state = PopState.OVER
        self._requests.discard(request)
        for timer in (request.timer, request.look_timer):
            if timer is not None:
                self._consumer.cancel(timer)
        self._lingering.stop(request)
        if request.channel is not None:
            request.channel.stop()
