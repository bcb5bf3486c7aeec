"""The pause of a client's rescue, while a person goes through `unrouted` with the same client."""

from threading import Lock


class RescuePause:
    """Counts who wants the pause; from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    @property
    def is_on(self) -> bool:
        """Whether no rescue may begin."""
        return self._count > 0

    def begin(self) -> None:
        """Let no rescue begin until `end`."""
        with self._lock:
            self._count += 1

    def end(self) -> None:
        """Let rescues begin again, if no other pause is on."""
        with self._lock:
            self._count -= 1
