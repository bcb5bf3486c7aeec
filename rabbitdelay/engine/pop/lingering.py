"""Wait a moment for more jobs: ready jobs arrive in a burst."""

from collections.abc import Callable
from functools import partial

from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.pop.pop_request import PopRequest

LINGER_SECONDS = 0.03
"""Wait for the next job after the last one, in a pop of several."""
LINGER_MOST_SECONDS = 0.2
"""Maximum total of such waits, because the ttr of the first job has started."""


class Lingering:
    """Ends each pop that has a job when no further job arrives; on the transport's thread."""

    def __init__(self, consumer: Consumer, end: Callable[[PopRequest], None]) -> None:
        self._consumer = consumer
        self._end = end

    def start(self, request: PopRequest) -> None:
        """Start to wait, unless the pop waits already."""
        if request.linger_timer is None:
            self._go_on(request, self._consumer.monotonic() + LINGER_MOST_SECONDS)

    def stop(self, request: PopRequest) -> None:
        """Stop waiting."""
        if request.linger_timer is not None:
            self._consumer.cancel(request.linger_timer)
            request.linger_timer = None

    def _go_on(self, request: PopRequest, until: float) -> None:
        look = partial(self._look, request, len(request.leases), until)
        request.linger_timer = self._consumer.call_later(LINGER_SECONDS, look)

    def _look(self, request: PopRequest, count: int, until: float) -> None:
        request.linger_timer = None
        if len(request.leases) == count or self._consumer.monotonic() >= until:
            self._end(request)
        else:
            self._go_on(request, until)
