"""Keep the rescue of parked jobs from beginning while the same client lists or retries them."""

from threading import Lock


class RescueGuard:
    """Counts the passes during which rescues must not begin; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    @property
    def is_on(self) -> bool:
        """Whether rescues must not begin."""
        return self._count > 0

    def begin(self) -> None:
        """Prevent new rescues until `end`."""
        with self._lock:
            self._count += 1

    def end(self) -> None:
        """End one pass. A rescue may begin after the end of the last one."""
        with self._lock:
            self._count -= 1
