"""Whether a worker was told to stop, by a call or by signals."""

from rabbitdelay.engine.flow import Bell


class StopRequests:
    """The requests to stop one worker. Any thread may call, and a signal handler too."""

    def __init__(self) -> None:
        self.told = Bell()
        """Rung when the worker may have to stop."""
        self._is_requested = False
        self._is_requested_at_once = False
        self._signals = 0

    def stop(self, *, at_once: bool) -> None:
        """Request a stop, with or without the grace for running handlers."""
        self._is_requested_at_once = self._is_requested_at_once or at_once
        self._is_requested = True
        self.told.ring()

    def signalled(self, *_: object) -> None:
        """Only count the signal, because the interrupted thread may hold any lock."""
        self._signals += 2 if self._is_requested else 1

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._is_requested or self._signals > 0

    @property
    def is_at_once(self) -> bool:
        """Whether the grace is cut short, by a second signal or by request."""
        return self._is_requested_at_once or self._signals > 1

    def end_run(self) -> None:
        """Forget the request that has ended a run."""
        self._is_requested = False

    def begin_another_run(self) -> None:
        """Forget how the run before was ended."""
        self._signals = 0
        self._is_requested_at_once = False
