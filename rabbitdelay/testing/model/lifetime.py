"""The end of a queue that is not used any more."""

from collections.abc import Callable

from rabbitdelay.testing.model.arguments import QueueArguments
from rabbitdelay.testing.model.clock import Clock


class Lifetime:
    """Deletes a queue with `x-expires` when it had no consumer for that long.

    A declaration or a basic.get counts as a use, too.
    """

    def __init__(
        self, arguments: QueueArguments, clock: Clock, delete: Callable[[], object]
    ) -> None:
        self._seconds = None if arguments.expires_ms is None else arguments.expires_ms / 1000
        self._clock = clock
        self._delete = delete
        self._timer: object = None
        self.left()

    def used(self) -> None:
        """Note that the queue has a consumer."""
        if self._timer is not None:
            self._clock.cancel(self._timer)
            self._timer = None

    def left(self) -> None:
        """Note the last use of a queue without consumers."""
        self.used()
        if self._seconds is not None:
            self._timer = self._clock.call_later(self._seconds, self._delete)

    def end(self) -> None:
        """Stop the timer."""
        self._seconds = None
        self.used()
